"""A lab that could not be made once can be made again: nothing of the first attempt is left."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.hosts import local
from tunnelmark.hosts.agent import CpuSnapshot
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab import devices, endpoints, hosts_place, place
from tunnelmark.lab.devices import Devices
from tunnelmark.lab.endpoints import EndpointMachinesPlace
from tunnelmark.lab.hosts_place import HostsPlace
from tunnelmark.lab.place import LocalPlace, MachinePlace, Place
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption


class Kernel:
    """What exists, by name: a second one of a name is refused."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.fails: set[str] = set()
        """What cannot be done, once each."""

    def make(self, name: str) -> None:
        self.once(name)
        if name in self.there:
            raise LabFailedError(f"cannot make {name}: File exists")
        self.there.add(name)

    def once(self, what: str) -> None:
        if what in self.fails:
            self.fails.remove(what)
            raise LabFailedError(f"{what} failed")


class Thing:
    """A namespace or a control group: made with its name, and gone when it is removed."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name = kernel, name
        kernel.make(name)

    def remove(self) -> None:
        self.kernel.there.discard(self.name)


class Namespace(Thing):
    """A host of the lab, with the limit of its programs."""

    def __init__(self, kernel: Kernel, name: str, limit: Thing | None = None) -> None:
        self.limit = limit
        super().__init__(kernel, f"netns {name}")
        self.name, self.namespace = name, name

    def run(self, argv: list[str], **_: object) -> Any:
        self.kernel.once(" ".join(argv[:3]))
        return SimpleNamespace(returncode=0)

    def stop_all(self) -> None:
        """No program was started."""

    def remove(self) -> None:
        self.kernel.there.discard(f"netns {self.name}")
        if self.limit is not None:
            self.limit.remove()


class Booted:
    """A machine, which closes with its lab."""

    facts = SimpleNamespace(qemu_pid=1)

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name = kernel, f"machine {name}"
        kernel.make(self.name)

    def close(self) -> None:
        self.kernel.there.discard(self.name)

    def go_first(self) -> None:
        self.kernel.once(f"{self.name} first")


class Booting:
    """One that is on its way."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.booted = Booted(kernel, name)

    def machine(self) -> Booted:
        try:
            self.kernel.once(f"boot {self.name}")
        except LabFailedError:
            self.cancel()
            raise
        return self.booted

    def cancel(self) -> None:
        self.booted.close()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()

    def namespace(_ledger: object, name: str, *, limit: Any = None, **_: object) -> Namespace:
        return Namespace(made, name, limit)

    def joined(hosts: Mapping[str, Any], *_: object, **__: object) -> Any:
        made.once("join")
        return hosts

    def endpoint(machine: Any, *, name: str, **_: object) -> Any:
        def remove() -> None:
            machine.close()
            if host.limit is not None:
                host.limit.remove()

        run = lambda *_, **__: SimpleNamespace(returncode=0)  # noqa: E731
        host = SimpleNamespace(machine=machine, name=name, limit=None, run=run, remove=remove)
        return host

    monkeypatch.setattr(place, "NetnsHost", namespace)
    monkeypatch.setattr(place, "_joined", joined)
    monkeypatch.setattr(endpoints, "NetnsHost", namespace)
    monkeypatch.setattr(endpoints, "Booting", lambda _link, *, name, **_: Booting(made, name))
    monkeypatch.setattr(endpoints, "EndpointHost", endpoint)
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path) as ledger:
        yield ledger


@pytest.mark.parametrize("fault", ["join", "netns server", "netns link"])
def test_namespaces_that_could_not_be_joined_are_made_again(
    kernel: Kernel, ledger: Ledger, fault: str
) -> None:
    def limits() -> Any:
        return {"client": Thing(kernel, "group client"), "server": Thing(kernel, "group server")}

    one = LocalPlace(ledger, engine="/e/engine", limits=limits)
    kernel.fails = {fault}
    with pytest.raises(LabFailedError, match=fault):
        one.make(Topology(), through_link=True)
    assert (kernel.there, one.limits) == (set(), {})
    hosts: Any = one.make(Topology(), through_link=True)
    assert list(hosts) == ["client", "server", "link"]
    assert list(one.limits) == ["client", "server"]


@pytest.mark.parametrize("kind", ["local", "machine", "hosts"])
def test_one_host_that_cannot_be_removed_keeps_no_other_there(
    kernel: Kernel, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """What is said is why the lab could not be made."""

    class Stubborn(Namespace):
        def remove(self) -> None:
            super().remove()
            if self.name == "client":
                raise LabFailedError("client: no response")

    def made(*_: object, name: str = "", **__: object) -> Stubborn:
        return Stubborn(kernel, name)

    monkeypatch.setattr(place, "NetnsHost", lambda _ledger, name, **_: Stubborn(kernel, name))
    monkeypatch.setattr(place, "VmNetnsHost", made)
    monkeypatch.setattr(hosts_place, "SshNetnsHost", made)
    facts = SimpleNamespace(emulated=False, describe=lambda: "machine")
    agent: Any = SimpleNamespace(facts=facts, engine="/e/engine", kernel="6", directory=tmp_path)
    there = SimpleNamespace(agent=agent, role="client", host=None)
    computers: Any = dict.fromkeys(("client", "server"), there)
    nothing: Any = {}
    limits: Any = lambda: {"server": Thing(kernel, "group server")}  # noqa: E731
    places: dict[str, Place] = {
        "local": LocalPlace(ledger, engine="/e/engine", limits=limits),
        "machine": MachinePlace(agent, "tm0", logs=tmp_path),
        "hosts": HostsPlace(computers, nothing, "tm0", logs=tmp_path),
    }
    one = places[kind]
    kernel.fails = {"netns link"}
    with pytest.raises(LabFailedError, match="netns link failed"):
        one.make(Topology(), through_link=True)
    assert kernel.there == set()


def test_the_cores_that_run_a_machine_are_looked_at_with_its_own(tmp_path: Path) -> None:
    snapshot = CpuSnapshot("cpu0 0 0 0 9 0 0 0 0\n", 0, {}, {})
    facts = SimpleNamespace(emulated=True, describe=lambda: "machine")
    machine: Any = SimpleNamespace(facts=facts, cpu=lambda: snapshot)
    view = MachinePlace(machine, "tm0", logs=tmp_path).cpu.look()
    assert [core.idle for core in view.cores] == [9]
    assert len(view.underlying()) == os.cpu_count()


@pytest.mark.parametrize(
    "fault",
    [
        *("ip tuntap add", "machine client", "machine server", "boot client", "boot server"),
        *("group server", "machine server first"),
    ],
)
def test_machines_that_could_not_be_joined_are_booted_again(
    kernel: Kernel, ledger: Ledger, fault: str
) -> None:
    def limits(_hosts: object) -> Any:
        client = Thing(kernel, "group client")
        if fault != "group server":
            return {"client": client}
        try:
            return {"client": client, "server": Thing(kernel, "group server")}
        except LabFailedError:
            client.remove()
            raise

    image: Any = SimpleNamespace(kernel_release="6")
    nothing: Any = SimpleNamespace(accelerator="kvm")
    one = EndpointMachinesPlace(
        ledger, engine="/e/engine", image=image, payload=nothing, choice=nothing, limits=limits
    )
    kernel.fails = {fault}
    with pytest.raises(LabFailedError, match=fault):
        one.make(Topology(), through_link=True)
    assert (kernel.there, one.limits, one.machines) == (set(), {}, {})
    assert one.make(Topology(), through_link=True).link.name == "link"
    assert kernel.there >= {"netns link", "machine client", "machine server"}


def test_a_machine_that_cannot_be_closed_keeps_nothing_else_there(
    kernel: Kernel, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(booted: Booted) -> None:
        booted.kernel.there.discard(booted.name)
        raise LabFailedError(f"{booted.name}: does not end")

    monkeypatch.setattr(Booted, "close", close)
    image: Any = SimpleNamespace(kernel_release="6")
    nothing: Any = SimpleNamespace(accelerator="kvm")
    one = EndpointMachinesPlace(
        ledger, engine="/e/engine", image=image, payload=nothing, choice=nothing
    )
    kernel.fails = {"machine server first"}
    with pytest.raises(LabFailedError, match="machine server first failed"):
        one.make(Topology(), through_link=True)
    assert (kernel.there, one.limits, one.machines) == (set(), {}, {})


def test_the_limit_of_one_machine_goes_where_the_other_has_none(
    kernel: Kernel, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit(_ledger: object, _controller: object, role: str, *_: object) -> Thing:
        return Thing(kernel, f"group {role}")

    monkeypatch.setattr(devices, "MachineLimit", limit)
    monkeypatch.setattr(devices, "find_controller", lambda: None)
    nobody: Any = None
    made = Devices(ledger, nobody, engine="/e/engine")
    spec = DriverSpec("pi-b", "pi-b", {"endpoint": "both"})
    hosts: Any = {role: SimpleNamespace(machine=None) for role in ("client", "server")}
    kernel.fails = {"group server"}
    with pytest.raises(LabFailedError, match="group server"):
        made.machine_limits(spec, Encryption("AES-128-GCM"), hosts)
    assert kernel.there == set()
    assert len(made.machine_limits(spec, Encryption("AES-128-GCM"), hosts)) == 2


def test_a_namespace_whose_loopback_does_not_come_up_is_removed(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger, tmp_path: Path
) -> None:
    removed: list[str] = []
    made = SimpleNamespace(returncode=0, stdout=b"", stderr=b"")
    (tmp_path / "group").touch()
    limit: Any = SimpleNamespace(remove=(tmp_path / "group").unlink)

    def fails(*_: object, **__: object) -> None:
        raise LabFailedError("ip ended with status 1")

    monkeypatch.setattr(local, "_run", lambda *_: made)
    monkeypatch.setattr(local.NetnsHost, "run", fails)
    monkeypatch.setattr(
        local, "undo", lambda _run, entries: removed.extend(e.name for e in entries)
    )
    with pytest.raises(LabFailedError):
        local.NetnsHost(ledger, "client", limit=limit)
    assert removed == [f"{ledger.run_id}-client"]
    assert not (tmp_path / "group").exists()


def test_a_namespace_that_is_made_too_slowly_is_removed_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger, tmp_path: Path
) -> None:
    removed: list[str] = []
    (tmp_path / "group").touch()
    limit: Any = SimpleNamespace(remove=(tmp_path / "group").unlink)

    def late(words: list[str], *_: object) -> None:
        raise subprocess.TimeoutExpired(words, 10)

    def undo(_run: str, entries: list[Any]) -> None:
        removed.extend(entry.name for entry in entries)
        raise subprocess.TimeoutExpired(["ip", "netns", "pids"], 10)

    monkeypatch.setattr(local, "_run", late)
    monkeypatch.setattr(local, "undo", undo)
    with pytest.raises(LabFailedError, match="client: cannot make a network namespace: ip did not"):
        local.NetnsHost(ledger, "client", limit=limit)
    assert removed == [f"{ledger.run_id}-client"]
    assert not (tmp_path / "group").exists()
