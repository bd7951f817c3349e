"""How much of this computer's CPU a device is: found by running its benchmark under the limit.

``openssl speed`` and ``dd bs=1`` run inside a limited group until the figure that the study chose
is within 5 % of the device's. The others are measured under that limit and reported.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tunnelmark.devices.profiles import SYSTEM_CALLS, Device
from tunnelmark.hosts.cgroup import LEAST_SHARE, Quota, quota_of
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed
from tunnelmark.model.quantity import percent

TOLERANCE: Final = 0.05

PLAIN_CODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        # None of these cores has instructions for AES: libraries get the hint that ours has none.
        "OPENSSL_ia32cap": "0:0",
        "OPENSSL_armcap": "0",
        "GNUTLS_CPUID_OVERRIDE": "0x1",
        "GODEBUG": "cpu.aes=off,cpu.avx2=off,cpu.pclmulqdq=off",
    }
)
"""Environment of the programs of a device without instructions for ciphers."""

_AIM: Final = 0.025
"""What the first half of the attempts is content with."""
_ATTEMPTS: Final = 10
_TIMED_S: Final = 1
_UNLIMITED_RUNS: Final = 3
_PERIODS: Final = 50
"""A run lasts so many periods at least: the part of one at its end is 2 % then."""
_SPEED: Final = re.compile(r"^\+F:\d+:[^:]{1,40}:(\d{1,15}\.\d+)$", re.MULTILINE)
_DD: Final = re.compile(
    r"^(\d{1,12}) bytes? .*copied, (\d{1,6}(?:\.\d+)?(?:e-\d+)?) s,", re.MULTILINE
)

Bench = Callable[[Sequence[str], Mapping[str, str], float], Completed]
"""Runs a program under the limit: words, environment, time limit in s."""


@dataclass(frozen=True)
class Measured:
    """A figure of the device, and what the limited group does."""

    wanted: float
    measured: float
    estimate: bool

    @property
    def deviation(self) -> float:
        """Relative to the device's figure."""
        return self.measured / self.wanted - 1


@dataclass(frozen=True)
class Calibration:
    """A limit that was found."""

    device: Device
    on: str
    """The figure that is met."""
    quota: Quota
    """Of one core of the device."""
    environment: Mapping[str, str]
    figures: Mapping[str, Measured]
    unlimited: float
    """What this computer does of ``on`` without a limit."""

    def describe(self) -> str:
        """Return one paragraph for the environment of a result."""
        device, quota = self.device, self.quota
        parts = [
            f"{name} {_amount(name, m.measured)} for {_amount(name, m.wanted)} "
            f"({percent(m.deviation, sign=True)}{', estimate' if m.estimate else ''})"
            for name, m in self.figures.items()
        ]
        plain = ", without cipher instructions" if self.environment else ""
        return (
            f"{device.title}, {device.cores} x {device.core} {device.mhz} MHz: "
            f"{percent(quota.share, 2)} of a core of this computer for each of its own "
            f"({quota.quota_us} us in {quota.period_us} us){plain}; calibrated on {self.on}; "
            + "; ".join(parts)
        )


def calibrate(
    device: Device, on: str, bench: Bench, limit: Callable[[Quota | None], None]
) -> Calibration:
    """Find the share of a core that makes ``bench`` do what the device does.

    ``limit`` sets the limit under which ``bench`` runs, None for none. Raises ``LabError`` if this
    computer is slower than the device, or the figure cannot be met within 5 %.
    """
    wanted = device.figure(on).value
    limit(None)
    environment, full = _code(device, on, wanted, bench)
    share = wanted / full
    for attempt in range(_ATTEMPTS):
        quota = quota_of(min(share, 1.0))
        limit(quota)
        measured = _measure(on, bench, environment, quota, wanted)
        if abs(measured / wanted - 1) <= (_AIM if attempt < _ATTEMPTS / 2 else TOLERANCE):
            break
        share = min(1.0, max(LEAST_SHARE, share / 4, share * wanted / measured))
    else:
        raise LabError(
            f"device {device.kind}: {on} reached {_amount(on, measured)} instead of "
            f"{_amount(on, wanted)} in {_ATTEMPTS} attempts; it may differ by {percent(TOLERANCE)} "
            "(is this computer busy with other work?)"
        )
    figures = {on: Measured(wanted, measured, device.figure(on).estimate)}
    for name, figure in device.figures.items():
        if name not in figures:
            found = _measure(name, bench, environment, quota, figure.value)
            figures[name] = Measured(figure.value, found, figure.estimate)
    return Calibration(device, on, quota, environment, figures, full)


def unlimited(name: str, bench: Bench) -> tuple[float, float]:
    """Return MB/s of an algorithm on one core: with the computer's instructions, and in plain code.

    ``bench`` runs without a limit. Of three runs the fastest counts: nothing makes one faster than
    it is, and whatever else runs makes it slower.
    """
    own, plain = (
        max(_measure(name, bench, environment, None, 0.0) for _ in range(_UNLIMITED_RUNS))
        for environment in ({}, PLAIN_CODE)
    )
    return own, plain


def _code(device: Device, on: str, wanted: float, bench: Bench) -> tuple[Mapping[str, str], float]:
    """Choose between plain code and that with cipher instructions, if plain code is too slow."""
    best = 0.0
    for environment in ({},) if device.aes_instructions else (PLAIN_CODE, {}):
        full = _measure(on, bench, environment, None, wanted)
        if full >= wanted:
            return environment, full
        best = max(best, full)
    raise LabError(
        f"device {device.kind} is faster than this computer: {on} {_amount(on, wanted)} a core, "
        f"here {_amount(on, best)}"
    )


def _measure(
    name: str, bench: Bench, environment: Mapping[str, str], quota: Quota | None, wanted: float
) -> float:
    """Return MB/s, or pairs of system calls per second."""
    seconds = _TIMED_S if quota is None else max(_TIMED_S, -(-_PERIODS * quota.period_us // 10**6))
    limit_s = 60.0 + 20 * seconds
    if name == SYSTEM_CALLS:
        count = max(1, round(wanted * seconds))
        argv = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={count}"]
        return parse_dd(bench(argv, environment, limit_s))
    argv = ["openssl", "speed", "-elapsed", "-mr", "-seconds", str(seconds), "-bytes", "8192"]
    if name == "BF-CBC":
        # OpenSSL 3 keeps it apart.
        argv += ["-provider", "legacy", "-provider", "default"]
    return parse_speed(bench([*argv, "-evp", name.lower()], environment, limit_s))


def parse_speed(done: Completed) -> float:
    """Read ``openssl speed -mr`` of one algorithm and one size: 1,000,000 bytes/s."""
    found = _SPEED.findall(done.text())
    if done.returncode != 0 or len(found) != 1 or float(found[0]) <= 0:
        raise LabError(f"{' '.join(done.argv)}: no speed: {done.last_words()}")
    return float(found[0]) / 1e6


def parse_dd(done: Completed) -> float:
    """Read what dd says at its end: pairs of a read and a write of one byte per second."""
    found = _DD.findall(done.stderr.decode("utf-8", "replace"))
    if done.returncode != 0 or len(found) != 1 or float(found[0][1]) <= 0:
        raise LabError(f"{' '.join(done.argv)}: no rate: {done.last_words()}")
    return int(found[0][0]) / float(found[0][1])


def _amount(name: str, value: float) -> str:
    return f"{value:,.0f} pairs/s" if name == SYSTEM_CALLS else f"{value:.1f} MB/s"
