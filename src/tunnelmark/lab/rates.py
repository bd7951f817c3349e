"""What a core of this computer does of a cipher: it scales costs fitted here to a device."""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tunnelmark.devices.ciphers import figure_of, has_figure
from tunnelmark.lab.benchmarks import Bench, Goal, own_goal, unlimited
from tunnelmark.lab.environment import describe
from tunnelmark.model.costs import CipherRate
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed
from tunnelmark.model.tunnel import Encryption

_COMPUTER: Final = ("architecture", "cpu", "cores")
"""What says of an environment which computer it is of, as far as ciphers go."""


class Rates:
    """Rates of this computer, each measured when it is first asked for, by a device's benchmark."""

    def __init__(
        self,
        environments: Iterable[Mapping[str, str]],
        *,
        here: Mapping[str, str] | None = None,
        bench: Bench | None = None,
    ) -> None:
        """Take the environments of a result: nothing is measured if it is of another computer."""
        own = _computer(describe("", ()) if here is None else here)
        others = [one for one in map(_computer, environments) if one != own]
        self._elsewhere = (
            f"measured on another computer ({others[0]}; this is {own})" if others else ""
        )
        self._bench = bench or _run
        self._found: dict[Goal, CipherRate] = {}

    def of(self, encryption: Encryption) -> CipherRate | str:
        """Return the rate of a tunnel's cipher in its program's library, or why it is not known."""
        name = figure_of(encryption.cipher or "")
        if not has_figure(name):
            return f"no device has a rate of {encryption.cipher or 'its cipher'}"
        if self._elsewhere:
            return self._elsewhere
        goal = own_goal(name, encryption)
        try:
            if goal not in self._found:
                own, plain = unlimited(goal, self._bench)
                self._found[goal] = CipherRate(name, own, plain, goal.library)
        except LabError as error:
            return str(error)
        return self._found[goal]


def _computer(environment: Mapping[str, str]) -> str:
    return ", ".join(environment.get(name, "not known") for name in _COMPUTER)


def _run(argv: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Completed:
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **environment},
            capture_output=True,
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{argv[0]}: {error}") from error
    return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
