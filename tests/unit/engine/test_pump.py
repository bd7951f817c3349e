"""The thread that reads the events of an emulator."""

from types import SimpleNamespace
from typing import Any

from tunnelmark.engine.pump import EventPump
from tunnelmark.model.faults import UnwritableError


def test_a_process_whose_log_cannot_be_written_is_not_waited_for() -> None:
    def read_line(_timeout_s: float) -> str:
        raise UnwritableError("link.log: cannot be written")

    process: Any = SimpleNamespace(read_line=read_line)
    pump = EventPump()
    pump.start(process)
    assert pump.ready.wait(10)
    assert pump.last is None
