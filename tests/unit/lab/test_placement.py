import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.hosts import vm_accel, vm_payload
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.vm_accel import Choice
from tunnelmark.lab import placement
from tunnelmark.lab.awake import Awake
from tunnelmark.lab.place import LocalPlace, MachinePlace
from tunnelmark.lab.placement import MOST_BOOTS, Placement, Wanted
from tunnelmark.model.errors import LabError, LabFailedError, StudyError
from tunnelmark.model.host import Host
from tunnelmark.model.suites import MachineSystem
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption
from tunnelmark.vmimage import build, cache, programs
from tunnelmark.vmimage.cache import Image
from tunnelmark.vmimage.recipe import Recipe
from tunnelmark.vmimage.suites import SUITES


class Facts:
    kernel = "6.1"
    emulated = True

    def describe(self) -> str:
        return "machine of a test"


class FakeMachine:
    facts = Facts()

    def __init__(self) -> None:
        self.closed = 0

    def alive(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed += 1


class FakeHost:
    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path) as ledger:
        yield ledger


@pytest.fixture
def make(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Placement, FakeHost]]:
    """Make a placement whose machine, if it is asked for, is there at once."""

    def make(
        wanted: Wanted,
        *,
        uid: int = 0,
        machine: str | None = None,
        system: MachineSystem = MachineSystem(),  # noqa: B008  # frozen
    ) -> tuple[Placement, FakeHost]:
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        made = Placement(ledger, engine="/engine", wanted=wanted, system=system)
        host: Any = FakeHost(FakeMachine())

        def machine_host() -> Any:
            if machine is not None:
                raise LabError(machine)
            made._machine = host.machine
            return host

        monkeypatch.setattr(made, "machine_host", machine_host)
        return made, host

    return make


def everywhere(_host: Host) -> str | None:
    return None


def only_inside(host: Host) -> str | None:
    return None if isinstance(host, FakeHost) else "the kernel has no esp"


def nowhere(_host: Host) -> str | None:
    return "esoteric is not installed"


Make = Callable[..., tuple[Placement, FakeHost]]


def test_what_runs_here_runs_here(make: Make, tmp_path: Path) -> None:
    made, host = make("auto")
    assert made.choose("none", everywhere) is None
    assert made.hosts("none") == (made._local,)
    assert isinstance(made.place("none", tmp_path), LocalPlace)
    assert made._machine is None
    assert not host.machine.closed


def test_what_needs_another_kernel_runs_in_the_machine(make: Make, tmp_path: Path) -> None:
    made, host = make("auto")
    assert made.choose("ipsec", only_inside) is None
    assert made.choose("none", everywhere) is None
    place = made.place("ipsec", tmp_path)
    assert isinstance(place, MachinePlace)
    assert (place.engine, place.owner_pid) == ("/usr/local/bin/tunnelmark-engine", 1)
    assert place.placed_on == "network namespaces of a machine of a test"
    assert isinstance(made.place("none", tmp_path), LocalPlace)
    made.close()
    made.close()
    assert host.machine.closed == 1


def test_what_is_compared_runs_together_where_one_of_them_must(make: Make, tmp_path: Path) -> None:
    def only_here(host: Host) -> str | None:
        return "the image has no such program" if isinstance(host, FakeHost) else None

    tunnels = {"openvpn": everywhere, "pptp": only_inside, "native": only_here}
    made, _ = make("auto")
    for label, unavailable in tunnels.items():
        assert made.choose(label, unavailable) is None
    made.gather(tunnels)
    assert isinstance(made.place("openvpn", tmp_path), MachinePlace)
    assert isinstance(made.place("pptp", tmp_path), MachinePlace)
    assert isinstance(made.place("native", tmp_path), LocalPlace)
    # Nothing needs the machine: it is not booted.
    made, _ = make("auto", machine="must not be asked for")
    assert made.choose("openvpn", everywhere) is None
    made.gather({"openvpn": everywhere})
    assert isinstance(made.place("openvpn", tmp_path), LocalPlace)
    # A place requested is kept.
    made, _ = make("local")
    assert made.choose("openvpn", everywhere) is None
    made.gather({"openvpn": everywhere})
    assert isinstance(made.place("openvpn", tmp_path), LocalPlace)


@pytest.mark.parametrize(
    ("wanted", "device", "refused"),
    [
        ("machine", "host", False),
        ("machine", "pi-2", True),
        ("endpoints", "host", True),
    ],
)
def test_a_gateway_stands_in_the_machine_but_not_in_one_for_each_end(
    make: Make, wanted: Wanted, device: str, refused: bool
) -> None:
    made, _ = make(wanted)
    assert made.choose("pptp", only_inside) is None
    reason = made.gateway_problem("pptp", [DriverSpec(device, device, {})])
    assert (reason is not None) == refused
    assert reason is None or reason.startswith("a gateway and its clients stand in network")
    # What runs here has namespaces, whatever the device.
    assert made.gateway_problem("openvpn", [DriverSpec("pi-2", "pi-2", {})]) is None


def test_what_runs_nowhere_says_why_for_both(make: Make) -> None:
    made, _ = make("auto")
    reason = "esoteric is not installed; nor in a virtual machine: esoteric is not installed"
    assert made.choose("esoteric", nowhere) == reason
    made, _ = make("auto", machine="qemu is not installed")
    assert made.choose("ipsec", only_inside) == (
        "the kernel has no esp; nor in a virtual machine: qemu is not installed"
    )


def test_without_privileges_everything_runs_in_the_machine(make: Make, tmp_path: Path) -> None:
    made, _ = make("auto", uid=65534)
    assert made.choose("none", everywhere) is None
    assert isinstance(made.place("none", tmp_path), MachinePlace)


def test_what_is_wanted_is_kept(make: Make, tmp_path: Path) -> None:
    made, _ = make("local")
    assert made.choose("ipsec", only_inside) == "the kernel has no esp"
    made, _ = make("machine")
    assert made.choose("none", everywhere) is None
    assert isinstance(made.place("none", tmp_path), MachinePlace)
    assert made.choose("esoteric", nowhere) == "esoteric is not installed"


def test_machines_per_endpoint_need_privileges_for_the_link(make: Make) -> None:
    made, _ = make("endpoints", uid=65534)
    reason = made.choose("none", everywhere)
    assert reason is not None
    assert reason.startswith("the link between machines: namespaces need root")


def test_a_limited_device_gets_machines_of_its_own(make: Make) -> None:
    pi = DriverSpec("pi-b", "pi-b", {})
    shared, _ = make("machine")
    assert shared.choose("none", everywhere) is None
    with pytest.raises(LabError) as caught:
        shared.check_device(pi, {"none": Encryption()})
    assert str(caught.value) == (
        "device pi-b: only a machine of its own can be limited, and none shares one with the other "
        "endpoint (use --place endpoints)"
    )
    user, _ = make("auto", uid=65534)
    assert user.choose("none", everywhere) is None
    with pytest.raises(
        LabError, match="device pi-b: none needs virtual machines, and namespaces need"
    ):
        user.check_device(pi, {"none": Encryption()})


def test_without_qemu_the_package_is_named(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_PATH", "/nonexistent")
    made = Placement(ledger, engine="/engine", wanted="machine")
    assert made.choose("none", everywhere) == (
        "qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)"
    )
    assert list(made.describe()) == ["idle cores"]


@pytest.mark.parametrize(
    ("errors", "boots"),
    [
        ([LabFailedError("killed")], 2),
        ([LabFailedError("killed")] * MOST_BOOTS, MOST_BOOTS),
        ([LabError("qemu knows no such machine")], 1),
    ],
)
def test_a_machine_that_did_not_boot_is_booted_again_where_that_may_help(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, errors: list[LabError], boots: int
) -> None:
    reported: list[str] = []
    made = Placement(ledger, engine="/engine", wanted="machine", say=reported.append)
    image: Any = None
    choice: Any = None
    calls = 0

    class Booting:
        def __init__(self, *_: object, **__: object) -> None:
            nonlocal calls
            calls += 1

        def machine(self) -> FakeMachine:
            if calls <= len(errors):
                raise errors[calls - 1]
            return FakeMachine()

    monkeypatch.setattr(placement, "Booting", Booting)
    monkeypatch.setattr(vm_payload, "installed", lambda: None)
    if boots > len(errors):
        assert made._booted(image, choice).alive()
        assert reported == ["booting it again: killed"]
    else:
        with pytest.raises(LabError, match=str(errors[0])):
            made._booted(image, choice)
    assert calls == boots


TRIXIE = MachineSystem("trixie")


def test_with_a_suite_all_tunnels_run_in_the_machine(make: Make, tmp_path: Path) -> None:
    made, _ = make("auto", system=TRIXIE)
    assert made.choose("openvpn", everywhere) is None
    assert made.choose("esoteric", nowhere) == (
        "in a virtual machine of trixie: esoteric is not installed"
    )
    assert isinstance(made.place("openvpn", tmp_path), MachinePlace)
    # The baseline of a study without tunnels too.
    assert isinstance(made.place("none", tmp_path), MachinePlace)


def test_a_suite_and_a_lab_here_exclude_each_other(make: Make) -> None:
    with pytest.raises(StudyError, match="the suite trixie is of a virtual machine"):
        make("local", system=TRIXIE)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Image]:
    """Put images into a cache that a test has for itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "system")
    monkeypatch.setattr(programs, "need", lambda program: program)

    def store(recipe: Recipe, release: str) -> Image:
        building = cache.user_cache() / ".building"
        building.mkdir(parents=True)
        for name in cache.FILES:
            (building / name).touch()
        return cache.store(
            building,
            recipe,
            kernel_release=release,
            packages={"openvpn": "2.6.14"},
            modules=(),
            download_s=0,
            build_s=0,
        )

    return store


def test_each_suite_has_its_image_and_an_own_kernel_too(
    ledger: Ledger, images: Callable[..., Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    trixie = images(SUITES["trixie"], "6.12")
    own = images(replace(SUITES["trixie"], own_kernel="0" * 64), "6.17.0-mine")
    asked: list[Recipe] = []
    monkeypatch.setattr(build, "build", lambda **given: asked.append(given["recipe"]))

    def of(system: MachineSystem) -> Image | None:
        return Placement(ledger, engine="/engine", system=system)._ready_image()

    assert of(TRIXIE) == trixie
    assert of(MachineSystem("trixie", "6.17.0-mine")) == own
    # What is missing is built, but for a kernel whose files only its user has.
    assert of(MachineSystem()) is None
    assert asked == [SUITES["bookworm"]]
    with pytest.raises(LabError) as caught:
        of(MachineSystem(None, "6.17.0-mine"))
    assert str(caught.value) == (
        "there is no image of bookworm with kernel 6.17.0-mine for virtual machines (tunnelmark vm "
        "build --kernel FILE --modules DIR)"
    )


def test_the_environment_names_the_system_that_was_asked_for(
    ledger: Ledger, images: Callable[..., Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images(SUITES["trixie"], "6.12")
    monkeypatch.setattr(vm_accel, "choose", lambda _image: Choice("tcg", "a test"))
    made = Placement(ledger, engine="/engine", system=TRIXIE)
    assert made.describe() == {
        "idle cores": Awake().describe(),
        "machine system": "trixie",
        "machine image": f"{image.recipe_digest}, Linux 6.12",
        "machine accelerator": "tcg: a test",
        "machine packages": "openvpn=2.6.14",
    }
    assert list(Placement(ledger, engine="/engine").describe()) == ["idle cores"]
