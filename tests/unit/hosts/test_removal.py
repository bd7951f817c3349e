"""What a host in a machine or over SSH made there is removed, whatever fails meanwhile."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tunnelmark.hosts import agent_host
from tunnelmark.hosts.ssh_host import SshNetnsHost
from tunnelmark.hosts.vm import VmNetnsHost
from tunnelmark.hosts.vm_process import KILL
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.faults import UnwritableError

LATE = "machine a: spawn got no response after 30 s"


class Agent:
    """A place where namespaces have names; what ``fails`` names is late once."""

    directory = PurePosixPath("/tmp/tm0")  # noqa: S108 - nothing is made there
    patience = 1.0

    def __init__(self, *fails: str) -> None:
        self.fails = set(fails)
        self.namespaces: set[str] = set()
        self.running: dict[int, list[str]] = {}
        self.killed: list[int] = []
        self.forgotten: list[int] = []
        self._listeners: dict[int, Any] = {}
        self._numbers = itertools.count()

    def alive(self) -> bool:
        return True

    def start(
        self, argv: Sequence[str], _env: Mapping[str, str], *, within: int | None, **_: object
    ) -> tuple[int, int]:
        assert within is None or argv[1:2] != ["netns"], "it is known outside alone"
        self._once(" ".join(argv[:3]))
        number = next(self._numbers)
        self.running[number] = list(argv)
        return number, 1000 + number

    def listen(self, number: int, listener: Any) -> None:
        self._listeners[number] = listener
        words = self.running[number]
        if "sleep infinity" in words[-1]:
            if "holder says nothing" not in self.fails:
                listener.output(1, b"\n")
        elif words[0] != "daemon":
            self._end(number, self._status(words))

    def feed(self, _number: int, _data: bytes) -> None:
        self._once("stdin")

    def signal(self, number: int, signal: int, *, group: bool = True) -> None:
        assert group
        self.killed += [number] if signal == KILL else []
        self._end(number, -signal)

    def forget(self, number: int) -> None:
        self.forgotten.append(number)

    def _once(self, what: str) -> None:
        if what in self.fails:
            self.fails.remove(what)
            raise LabFailedError(LATE)

    def _status(self, words: Sequence[str]) -> int:
        if words[:2] != ["ip", "netns"]:
            return 0
        makes, name = words[2] == "add", words[3]
        if makes == (name in self.namespaces):
            return 1
        self.namespaces ^= {name}
        return 0

    def _end(self, number: int, status: int) -> None:
        self.running.pop(number, None)
        if number in self._listeners:
            self._listeners[number].ended(status)


def made(agent: Any, folder: Path, kind: Any = VmNetnsHost) -> Any:
    return kind(agent, name="client", unique="tm0-client", log_dir=folder / "logs")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_host, "_HOLDER_LIMIT_S", 0.05)


@pytest.mark.parametrize("kind", [VmNetnsHost, SshNetnsHost])
@pytest.mark.parametrize("fault", ["holder says nothing", "ip link set"])
def test_of_a_namespace_that_is_made_in_part_nothing_stays(
    tmp_path: Path, kind: Any, fault: str
) -> None:
    agent = Agent(fault)
    with pytest.raises(LabError) as caught:
        made(agent, tmp_path, kind)
    assert caught.value.transient
    assert (agent.running, agent.namespaces) == ({}, set())
    agent.fails.clear()
    host = made(agent, tmp_path, kind)
    assert len(agent.running) == 1
    host.remove()
    host.remove()
    assert (agent.running, agent.namespaces) == ({}, set())


@pytest.mark.parametrize("fault", ["ip netns add", "ip netns exec"])
def test_a_name_that_is_taken_is_free_for_the_next_attempt(tmp_path: Path, fault: str) -> None:
    """A program whose start was answered late may have made it all the same."""
    agent = Agent(fault)
    agent.namespaces = {"tm0-client"} if fault == "ip netns add" else set()
    with pytest.raises(LabError, match=LATE):
        made(agent, tmp_path)
    assert agent.namespaces == set()
    assert made(agent, tmp_path).namespace == "tm0-client"


@pytest.mark.parametrize("kind", [VmNetnsHost, SshNetnsHost])
def test_a_program_that_cannot_be_stopped_keeps_nothing_else_there(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent()
    host = made(agent, tmp_path, kind)
    host.spawn(["daemon"], name="first")
    stuck = host.spawn(["daemon"], name="second")

    def stop(**_: object) -> int:
        raise LabFailedError("second: did not exit within 10 s of SIGKILL")

    with monkeypatch.context() as patched:
        patched.setattr(stuck, "stop", stop)
        with pytest.raises(LabFailedError, match="second: did not exit"):
            host.remove()
    assert list(agent.running.values()) == [["daemon"]]
    assert agent.namespaces == set()
    host.remove()
    assert agent.running == {}


@pytest.mark.parametrize("kind", [VmNetnsHost, SshNetnsHost])
def test_a_holder_that_was_not_stopped_is_stopped_by_the_next_removal(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent()
    host = made(agent, tmp_path, kind)

    def stop(**_: object) -> int:
        raise LabFailedError(LATE)

    with monkeypatch.context() as patched:
        patched.setattr(host._holder, "stop", stop)
        with pytest.raises(LabFailedError, match=LATE):
            host.remove()
    assert agent.namespaces == set()
    host.remove()
    assert agent.running == {}


def test_a_program_without_a_log_does_not_run_on(tmp_path: Path) -> None:
    agent = Agent()
    host = made(agent, tmp_path)
    logs = tmp_path / "logs" / "client"
    logs.rename(tmp_path / "earlier")
    logs.touch()
    with pytest.raises(UnwritableError):
        host.spawn(["daemon"], name="daemon")
    (holder,) = agent.running
    (number,) = agent.killed
    assert number == agent.forgotten[-1] != holder
    assert host.spawned == ()


def test_a_program_that_was_not_given_its_input_does_not_run_on(tmp_path: Path) -> None:
    agent = Agent()
    host = made(agent, tmp_path)
    agent.fails = {"stdin"}
    with pytest.raises(LabFailedError, match=LATE):
        host.run(["daemon"], stdin=b"words")
    assert len(agent.running) == 1
    assert agent.killed == agent.forgotten[-1:]
