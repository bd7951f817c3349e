"""Errors in the middle of a trial: each makes the trial invalid, and the run goes on."""

import traceback
from pathlib import Path
from types import TracebackType

from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.faults import UnwritableError, one_line, write, writing
from tunnelmark.model.validity import Check


class Faults:
    """Collects what broke during one trial.

    What nobody foresaw has its whole traceback in a file of ``logs``; a reader gets one line.
    """

    def __init__(self, logs: Path | None, name: str) -> None:
        """``name`` is that of the attempt; nothing has broken yet."""
        self._logs = logs
        self._name = name
        self.checks: list[Check] = []

    def caught(self, where: str) -> "_Caught":
        """Return a context in which an error ends the body, and no more than the body.

        ``UnwritableError`` goes through: nothing can be kept any more. So does what is no
        ``Exception``, such as the wish to end the run.
        """
        return _Caught(self, where)

    def add(self, where: str, error: Exception) -> None:
        """Make the trial invalid."""
        message = one_line(error)
        if self._logs is not None and not isinstance(error, TunnelmarkError):
            file = self._logs / f"{self._name}-{where}.txt"
            with writing(file.parent):
                file.parent.mkdir(parents=True, exist_ok=True)
            write(file, "".join(traceback.format_exception(error)).encode())
            message += f" (traceback in logs/{self._logs.name}/{file.name})"
        self.checks.append(Check(where, ok=False, message=message))


class _Caught:
    def __init__(self, faults: Faults, where: str) -> None:
        self._faults = faults
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, UnwritableError):
            return False
        self._faults.add(self._where, error)
        return True
