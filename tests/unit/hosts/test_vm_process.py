from pathlib import Path

import pytest

from tunnelmark.hosts.vm_process import VmProcess
from tunnelmark.model.errors import LabError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.host import Process


class Signals:
    """What was sent; TERM and KILL end the process unless it is deaf."""

    def __init__(self, *, deaf_to: tuple[int, ...] = ()) -> None:
        self.sent: list[int] = []
        self.alone: list[int] = []
        self.process: VmProcess | None = None
        self._deaf_to = deaf_to

    def __call__(self, number: int, group: bool) -> None:
        if not group:
            self.alone.append(number)
            return
        self.sent.append(number)
        if self.process is not None and number not in self._deaf_to:
            self.process.ended(-number)


def make(tmp_path: Path, signals: Signals, *, lines: bool = False) -> VmProcess:
    process = VmProcess(
        ("openvpn",),
        name="openvpn-0",
        pid=42,
        pid_base=100,
        log=tmp_path / "logs" / "openvpn-0.log",
        lines=lines,
        signal=signals,
    )
    signals.process = process
    return process


def test_it_is_a_process(tmp_path: Path) -> None:
    process = make(tmp_path, Signals())
    assert isinstance(process, Process)
    assert (process.argv, process.name) == (("openvpn",), "openvpn-0")
    assert (process.pid, process.host_pid) == (142, 42)


def test_output_goes_to_the_log_even_after_the_end(tmp_path: Path) -> None:
    process = make(tmp_path, Signals())
    process.output(1, b"one\n")
    process.output(2, b"two\n")
    process.ended(0)
    process.output(1, b"a child's words\n")
    log = tmp_path / "logs" / "openvpn-0.log"
    assert log.read_text() == "one\ntwo\na child's words\n"
    assert log.stat().st_mode & 0o777 == 0o600
    assert process.log_tail(2) == "two\na child's words"


def test_a_full_disk_is_reported_to_whoever_uses_the_program(tmp_path: Path) -> None:
    signals = Signals()
    process, by_lines = make(tmp_path / "a", signals), make(tmp_path / "b", signals, lines=True)
    for one, folder in ((process, "a"), (by_lines, "b")):
        log = tmp_path / folder / "logs" / "openvpn-0.log"
        log.unlink()
        log.symlink_to("/dev/full")
        with pytest.raises(UnwritableError) as caught:
            one.output(2, b"words")
        one.failed(caught.value)
        one.output(2, b"more words")  # behind a gap: no log any more
        words = f"{log}: cannot be written: No space left on device"
        with pytest.raises(UnwritableError, match=words):
            one.poll()
        with pytest.raises(UnwritableError, match=words):
            one.wait(1)
    with pytest.raises(UnwritableError):
        by_lines.read_line(1)
    # Its end is not held up: whoever removes it must not fail.
    signals.process = process
    assert process.stop() == -15


def test_a_log_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no directory")
    with pytest.raises(UnwritableError, match=r"logs/openvpn-0\.log: cannot be written"):
        make(tmp_path, Signals())


def test_lines_are_whole_and_end(tmp_path: Path) -> None:
    process = make(tmp_path, Signals(), lines=True)
    process.output(1, b"first\nsec")
    process.output(2, b"to the log\n")
    process.output(1, b"ond\nlast")
    process.ended(0)
    read = [process.read_line(1) for _ in range(5)]
    assert read == ["first", "second", "last", None, None]
    assert process.log_tail() == "to the log"


def test_a_late_line_is_named(tmp_path: Path) -> None:
    process = make(tmp_path, Signals(), lines=True)
    with pytest.raises(TimeoutError, match=r"no line after 0\.01 s"):
        process.read_line(0.01)
    with pytest.raises(LabError, match="not started to be read by lines"):
        make(tmp_path, Signals()).read_line(0.01)


def test_stop_asks_first_and_sweeps_up_afterwards(tmp_path: Path) -> None:
    signals = Signals()
    process = make(tmp_path, signals)
    assert process.poll() is None
    assert process.stop() == -15
    assert process.poll() == -15
    assert signals.sent == [15]
    assert process.stop() == -15
    assert signals.sent == [15, 9]


def test_who_does_not_listen_is_killed(tmp_path: Path) -> None:
    signals = Signals(deaf_to=(15,))
    assert make(tmp_path, signals).stop(grace_s=0.01) == -9
    assert signals.sent == [15, 9]


def test_wait_has_a_limit(tmp_path: Path) -> None:
    process = make(tmp_path, Signals())
    with pytest.raises(TimeoutError, match=r"openvpn-0: still runs after 0\.01 s"):
        process.wait(0.01)


def test_the_first_end_counts(tmp_path: Path) -> None:
    process = make(tmp_path, Signals())
    process.ended(3)
    process.ended(-9)
    assert process.wait(0) == 3


def test_a_signal_goes_to_the_process_alone_while_it_runs(tmp_path: Path) -> None:
    signals = Signals()
    process = make(tmp_path, signals)
    process.signal(10)
    process.ended(0)
    process.signal(12)
    assert (signals.alone, signals.sent) == ([10], [])
