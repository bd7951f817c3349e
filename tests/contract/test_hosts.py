"""Every host of this machine against ``model.host.Host``."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tunnelmark.hosts.ledger import Kind, Ledger, start_time
from tunnelmark.hosts.local import LocalHost, NetnsHost
from tunnelmark.lab.clean import clean, find_leftovers
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Host


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    root = tmp_path / "runtime"
    root.mkdir(mode=0o700)
    with Ledger(root) as made:
        yield made


def _netns(ledger: Ledger) -> NetnsHost:
    if os.geteuid() != 0:
        pytest.skip("needs root: a network namespace is made")
    return NetnsHost(ledger, "client")


MAKERS: dict[str, Callable[[Ledger], Host]] = {"local": LocalHost, "netns": _netns}


@pytest.fixture(params=sorted(MAKERS))
def host(request: pytest.FixtureRequest, ledger: Ledger) -> Host:
    return MAKERS[request.param](ledger)


def test_a_host_is_named_after_its_run(host: Host, ledger: Ledger) -> None:
    assert host.unique.startswith(ledger.run_id)
    assert host.name in host.unique


def test_run_gives_output_and_status(host: Host) -> None:
    done = host.run(["cat"], stdin=b"through\n")
    assert (done.returncode, done.text()) == (0, "through\n")
    assert host.run(["false"], check=False).returncode == 1


def test_a_failure_has_the_program_s_last_words(host: Host) -> None:
    with pytest.raises(LabError, match="No such file"):
        host.run(["ls", "/no/such/place"])
    # a namespace's host starts programs by another program, which then has the last words
    with pytest.raises(LabError, match="no-such-program"):
        host.run(["no-such-program"])


def test_a_program_that_does_not_end_is_ended(host: Host) -> None:
    with pytest.raises(LabError, match="did not end within"):
        host.run(["sleep", "30"], timeout_s=0.2)


def test_what_a_program_leaves_behind_is_not_waited_for(host: Host) -> None:
    # The one in the background has the pipes, and would keep them for a minute.
    argv = ["sh", "-c", "sleep 60 & echo $! >&2; sleep 60"]
    begun = time.monotonic()
    with pytest.raises(LabError, match="did not end within"):
        host.run(argv, timeout_s=0.2)
    assert time.monotonic() - begun < 50, "it waited for what it had ended"


def test_arguments_are_words_and_never_a_command_line(host: Host) -> None:
    assert host.run(["echo", "$(id)", ";", "`id`"]).text() == "$(id) ; `id`\n"


def test_files_are_the_owner_s_alone_and_come_back(host: Host) -> None:
    path = host.work_dir / "deep" / "secret"
    host.put(path, b"\x00\xff")
    assert host.get(path) == b"\x00\xff"
    assert host.run(["stat", "-c", "%a", str(path)]).text().strip() == "600"
    assert host.run(["stat", "-c", "%a", str(host.work_dir)]).text().strip() == "700"
    with pytest.raises(LabError, match="longer than 1 byte"):
        host.get(path, limit_bytes=1)
    with pytest.raises(LabError, match="nothing-here"):
        host.get(host.work_dir / "nothing-here")


def test_a_process_is_read_stopped_and_reaped(host: Host) -> None:
    process = host.spawn(
        [sys.executable, "-uc", "import time\nprint('one')\ntime.sleep(60)"],
        name="reader",
        lines=True,
    )
    assert process.read_line(20.0) == "one"
    with pytest.raises(TimeoutError):
        process.read_line(0.05)
    assert process.poll() is None
    assert process.stop() != 0
    assert process.stop() != 0
    assert process.read_line(5.0) is None
    assert not Path(f"/proc/{process.pid}").exists()


_FORKS = 'setsid sh -c "echo \\$\\$; exec sleep 300" & wait'


def _ended(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while start_time(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return start_time(pid) is None


@pytest.mark.parametrize("end", ["stop", "kill", "its own"])
def test_what_a_program_forked_ends_with_it(host: Host, end: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: a control group is made")
    process = host.spawn(["sh", "-c", _FORKS], name="daemon", lines=True)
    forked = int(process.read_line(10.0) or "")
    assert start_time(forked) is not None
    if end == "its own":
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10.0)
        assert start_time(forked) is not None
    if end == "kill":
        process.kill()
    else:
        process.stop()
    assert _ended(forked)
    process.wait(10.0)


_KILLED = """
import sys, time
from pathlib import Path
from tunnelmark.hosts.ledger import Entry, Kind, Ledger, start_time
from tunnelmark.hosts.local import LocalHost
host = LocalHost(Ledger(Path(sys.argv[1])))
process = host.spawn(["sh", "-c", sys.argv[2]], name="daemon", lines=True)
print(process.read_line(10.0), flush=True)
time.sleep(300)
"""


def test_what_programs_of_a_killed_run_forked_ends_with_clean(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: a control group is made")
    argv = [sys.executable, "-c", _KILLED, str(tmp_path), _FORKS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        forked = int(run.stdout.readline())
        run.kill()
    assert start_time(forked) is not None
    removed = clean(find_leftovers(tmp_path))
    assert [line for line in removed if line.startswith("control group ")]
    assert _ended(forked)


def test_a_program_starts_only_when_it_is_in_the_ledger(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter, proof = ledger.enter, tmp_path / "it ran"

    def slow(kind: Kind, name: str, started: int = 0) -> None:
        if kind == "process":
            time.sleep(0.5)
            assert not proof.exists()
        enter(kind, name, started)

    monkeypatch.setattr(ledger, "enter", slow)
    process = LocalHost(ledger).spawn(["touch", str(proof)], name="touch")
    assert process.wait(10.0) == 0
    assert proof.exists()


def test_a_program_has_its_own_standard_input_or_none(host: Host) -> None:
    for stdin, said in ((b"one\ntwo", "one two"), (None, "")):
        process = host.spawn(["sh", "-c", "echo $(cat)"], name="cat", stdin=stdin, lines=True)
        assert process.read_line(10.0) == said
        assert process.wait(10.0) == 0


def test_a_process_that_ignores_term_is_killed(host: Host) -> None:
    process = host.spawn(
        ["sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done"],
        name="stubborn",
        lines=True,
    )
    assert process.read_line(10.0) == "ready"
    assert process.stop(grace_s=0.3) == -9


def test_the_log_has_the_last_words(host: Host) -> None:
    process = host.spawn(["sh", "-c", "echo first; echo last >&2"], name="talker")
    assert process.wait(10.0) == 0
    assert process.log_tail(1) == "last"


def test_the_log_has_as_many_lines_as_are_wanted(host: Host) -> None:
    """A gateway writes some thirty lines of each client, and its own come first."""
    process = host.spawn(["seq", "-f", "line %099.0f", "2000"], name="talker")
    assert process.wait(10.0) == 0
    lines = process.log_tail(2000).splitlines()
    assert len(lines) == 2000
    assert lines[0].endswith("01")


def test_a_private_directory_is_seen_by_the_process_alone(host: Host, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: a directory is mounted over")
    shared = tmp_path / "shared"
    shared.mkdir()
    process = host.spawn(
        ["sh", "-c", 'echo here > "$1/file" && cat "$1/file"', "_", str(shared)],
        name="hermit",
        private_dirs=(str(shared),),
        lines=True,
    )
    assert process.read_line(10.0) == "here"
    assert process.wait(5.0) == 0
    assert list(shared.iterdir()) == []


def test_programs_and_features_are_found_or_not(host: Host) -> None:
    assert PurePosixPath(host.has("sh") or "").name == "sh"
    assert host.has("no-such-program") is None
    assert not host.has_kernel("no_such_feature")


def test_everything_ends_with_the_ledger(tmp_path: Path) -> None:
    root = tmp_path / "other"
    root.mkdir(mode=0o700)
    for make in MAKERS.values():
        with Ledger(root) as ledger:
            try:
                process = make(ledger).spawn(["sleep", "300"], name="sleeper")
            except pytest.skip.Exception:
                continue
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is not None
        assert list(root.iterdir()) == []
