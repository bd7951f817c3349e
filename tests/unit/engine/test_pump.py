"""The thread that reads the events of an emulator."""

import json
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any

from tunnelmark.engine.pump import EventPump
from tunnelmark.model.faults import UnwritableError


def _reports(*reports: tuple[str, int, bool]) -> Iterator[str]:
    for event, number, asked in reports:
        yield json.dumps({"event": event, "number": number, "asked": asked})


def test_an_answer_is_the_report_that_was_asked_for() -> None:
    lines: Queue[str | None] = Queue()
    process: Any = SimpleNamespace(read_line=lambda _timeout_s: lines.get())
    pump, heard = EventPump(), list[Any]()
    pump.start(process, heard.append)

    def signal() -> None:
        # One was on its way; one more comes behind the answer.
        for line in _reports(("progress", 1, False), ("progress", 2, True), ("progress", 3, False)):
            lines.put(line)

    answer = pump.ask(signal)
    assert answer is not None
    assert answer["number"] == 2
    ended = pump.ask(lambda: [lines.put(line) for line in _reports(("summary", 4, False))])
    assert ended is not None
    assert ended["number"] == 4
    lines.put(None)
    assert pump.ready.wait(10)
    assert [one["number"] for one in heard] == [1, 2, 3, 4]
    assert pump.last == heard[-1]


def test_a_process_whose_log_cannot_be_written_is_not_waited_for() -> None:
    def read_line(_timeout_s: float) -> str:
        raise UnwritableError("link.log: cannot be written")

    process: Any = SimpleNamespace(read_line=read_line)
    pump = EventPump()
    pump.start(process)
    assert pump.ready.wait(10)
    assert pump.last is None
