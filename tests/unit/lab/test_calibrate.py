"""Calibration against a computer whose speeds are known: it meets the figure, or says why not."""

from collections.abc import Mapping, Sequence

import pytest

from tunnelmark.devices.profiles import SYSTEM_CALLS
from tunnelmark.devices.registry import DEVICES
from tunnelmark.hosts.cgroup import Quota
from tunnelmark.lab.benchmarks import PLAIN_CODE, Goal
from tunnelmark.lab.calibrate import TOLERANCE, calibrate
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed

_PLAIN = {
    "aes-128-cbc": 300.0,
    "aes-256-cbc": 220.0,
    "aes-256-gcm": 95.0,
    "chacha20-poly1305": 610.0,
    "bf-cbc": 130.0,
    "des-ede3-cbc": 27.0,
    "sha1": 660.0,
}


_GO = 1070.0
"""Go keeps its vector code, whatever the environment says."""


class Computer:
    """Does what its limit grants, and a bit more: the kernel lets a tick run over the quota."""

    def __init__(self, speed: float = 1.0, over: float = 1.0, least_share: float = 0.0) -> None:
        self.speed, self.over, self.least_share = speed, over, least_share
        self.quota: Quota | None = None
        self.limits: list[Quota | None] = []
        self.ran: list[str] = []

    def limit(self, quota: Quota | None) -> None:
        self.quota = quota
        self.limits.append(quota)

    def bench(
        self, argv: Sequence[str], environment: Mapping[str, str], limit_s: float
    ) -> Completed:
        assert limit_s > 10
        share = 1.0 if self.quota is None else max(self.quota.share * self.over, self.least_share)
        if argv[0] == "dd":
            count = int(argv[-1].removeprefix("count="))
            self.ran.append("dd")
            seconds = count / (3.4e6 * self.speed * share)
            words = (
                f"1+0 records in\n1+0 records out\n{count} bytes copied, {seconds:.6f} s, 1 B/s\n"
            )
            return Completed(tuple(argv), 0, b"", words.encode())
        if argv[0] == "gocryptfs":
            self.ran.append("go")
            rate = _GO * self.speed * share
            line = f"XChaCha20-Poly1305-Go \t{rate:9.2f} MB/s\t(selected in auto mode)\n"
            return Completed(tuple(argv), 0, line.encode(), b"")
        name = argv[-1]
        self.ran.append(name)
        fast = 5.0 if not environment and name.startswith("aes") else 1.0
        rate = _PLAIN[name] * self.speed * fast * share * 1e6
        return Completed(tuple(argv), 0, f"+H:8192\n+F:25:{name}:{rate:.2f}\n".encode(), b"")


@pytest.mark.parametrize("over", [0.8, 1.0, 1.4])
@pytest.mark.parametrize(
    "kind",
    [kind for kind, device in DEVICES.items() if device.limited and not device.aes_instructions],
)
def test_every_device_is_met_within_the_tolerance(kind: str, over: float) -> None:
    computer = Computer(over=over)
    found = calibrate(DEVICES[kind], Goal("AES-128-CBC"), computer.bench, computer.limit)
    met = found.figures["AES-128-CBC"]
    assert abs(met.deviation) <= TOLERANCE
    assert met.wanted == DEVICES[kind].figure("AES-128-CBC").value
    assert found.environment == PLAIN_CODE
    assert computer.quota == found.quota
    assert set(found.figures) == {*DEVICES[kind].speeds_mbyte_s, SYSTEM_CALLS}


@pytest.mark.parametrize("kind", ["pi-5", "n100"])
def test_a_device_with_instructions_for_aes_keeps_them(kind: str) -> None:
    computer = Computer(speed=5.0)
    found = calibrate(DEVICES[kind], Goal("AES-256-GCM"), computer.bench, computer.limit)
    assert abs(found.figures["AES-256-GCM"].deviation) <= TOLERANCE
    assert found.environment == {}


def test_the_others_are_measured_under_the_limit_and_reported() -> None:
    computer = Computer()
    found = calibrate(DEVICES["pi-b"], Goal("AES-128-CBC"), computer.bench, computer.limit)
    share = found.quota.share
    assert found.figures["BF-CBC"].measured == pytest.approx(130 * share, rel=0.01)
    assert found.figures[SYSTEM_CALLS].measured == pytest.approx(3.4e6 * share, rel=0.01)
    words = found.describe()
    assert "Raspberry Pi B, 1 x ARM1176JZF-S 700 MHz" in words
    assert "calibrated on AES-128-CBC; AES-128-CBC 15." in words
    assert "BF-CBC 6.8 MB/s for 13.4 MB/s (-49 %)" in words
    assert "estimate)" in words


def test_system_calls_can_be_met_instead() -> None:
    computer = Computer()
    found = calibrate(DEVICES["pi-b"], Goal(SYSTEM_CALLS), computer.bench, computer.limit)
    assert abs(found.figures[SYSTEM_CALLS].deviation) <= TOLERANCE
    assert found.figures["AES-128-CBC"].deviation > 0.5


def test_a_faster_device_may_use_cipher_instructions_but_no_more() -> None:
    half = Computer(speed=0.1)
    found = calibrate(DEVICES["pi-3"], Goal("AES-128-CBC"), half.bench, half.limit)
    assert found.environment == {}
    assert "without cipher" not in found.describe()
    slow = Computer(speed=0.02)
    with pytest.raises(LabError) as caught:
        calibrate(DEVICES["pi-3"], Goal("AES-128-CBC"), slow.bench, slow.limit)
    assert str(caught.value) == (
        "device pi-3 is faster than this computer: AES-128-CBC 47.9 MB/s a core, here 30.0 MB/s"
    )


def test_a_figure_that_cannot_be_met_is_an_error() -> None:
    computer = Computer(least_share=0.2)
    with pytest.raises(LabError, match=r"AES-128-CBC reached 60\.0 MB/s instead of 15\.7 MB/s in"):
        calibrate(DEVICES["pi-b"], Goal("AES-128-CBC"), computer.bench, computer.limit)


def test_a_tunnel_of_another_library_gets_the_share_that_makes_its_own_code_as_fast() -> None:
    computer = Computer()
    by_go = calibrate(
        DEVICES["pi-3"], Goal("ChaCha20-Poly1305", "Go"), computer.bench, computer.limit
    )
    by_openssl = calibrate(
        DEVICES["pi-3"], Goal("ChaCha20-Poly1305"), computer.bench, computer.limit
    )
    assert abs(by_go.figures["ChaCha20-Poly1305"].deviation) <= TOLERANCE
    assert by_go.quota.share == pytest.approx(by_openssl.quota.share * 610 / _GO, rel=0.06)
    assert "calibrated on ChaCha20-Poly1305 of Go; ChaCha20-Poly1305 19" in by_go.describe()
    assert "calibrated on ChaCha20-Poly1305; " in by_openssl.describe()
