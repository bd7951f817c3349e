"""How much of this computer's CPU a device is: found by running a benchmark under the limit.

That of the cipher in a tunnel's own library, ``openssl speed`` or ``dd bs=1`` runs inside a limited
group until the figure that must be met is within 5 % of the device's. The others are measured under
that limit and reported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tunnelmark.devices.profiles import SYSTEM_CALLS, Device
from tunnelmark.hosts.cgroup import LEAST_SHARE, Quota, quota_of
from tunnelmark.lab.benchmarks import PLAIN_CODE, Bench, Goal, measure
from tunnelmark.model.errors import LabError
from tunnelmark.model.quantity import percent

TOLERANCE: Final = 0.05

_AIM: Final = 0.025
"""What the first half of the attempts is content with."""
_ATTEMPTS: Final = 10


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
    goal: Goal
    """The figure that is met, and by whose code."""
    quota: Quota
    """Of one core of the device."""
    environment: Mapping[str, str]
    figures: Mapping[str, Measured]
    unlimited: float
    """What this computer does of ``goal`` without a limit."""

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
            f"({quota.quota_us} us in {quota.period_us} us){plain}; "
            f"calibrated on {self.goal.describe()}; " + "; ".join(parts)
        )


def calibrate(
    device: Device, goal: Goal, bench: Bench, limit: Callable[[Quota | None], None]
) -> Calibration:
    """Find the share of a core that makes ``bench`` do what the device does.

    ``limit`` sets the limit under which ``bench`` runs, None for none. Raises ``LabError`` if this
    computer is slower than the device, or the figure cannot be met within 5 %.
    """
    on = goal.figure
    wanted = device.figure(on).value
    limit(None)
    environment, full = _code(device, goal, wanted, bench)
    share = wanted / full
    for attempt in range(_ATTEMPTS):
        quota = quota_of(min(share, 1.0))
        limit(quota)
        measured = measure(goal, bench, environment, quota=quota, wanted=wanted)
        if abs(measured / wanted - 1) <= (_AIM if attempt < _ATTEMPTS / 2 else TOLERANCE):
            break
        share = min(1.0, max(LEAST_SHARE, share / 4, share * wanted / measured))
    else:
        raise LabError(
            f"device {device.kind}: {goal.describe()} reached {_amount(on, measured)} instead of "
            f"{_amount(on, wanted)} in {_ATTEMPTS} attempts; it may differ by {percent(TOLERANCE)} "
            "(is this computer busy with other work?)"
        )
    figures = {on: Measured(wanted, measured, device.figure(on).estimate)}
    for name, figure in device.figures.items():
        if name not in figures:
            found = measure(Goal(name), bench, environment, quota=quota, wanted=figure.value)
            figures[name] = Measured(figure.value, found, figure.estimate)
    return Calibration(device, goal, quota, environment, figures, full)


def _code(
    device: Device, goal: Goal, wanted: float, bench: Bench
) -> tuple[Mapping[str, str], float]:
    """Choose between plain code and that with cipher instructions, if plain code is too slow."""
    best = 0.0
    for environment in ({},) if device.aes_instructions else (PLAIN_CODE, {}):
        full = measure(goal, bench, environment, wanted=wanted)
        if full >= wanted:
            return environment, full
        best = max(best, full)
    raise LabError(
        f"device {device.kind} is faster than this computer: {goal.describe()} "
        f"{_amount(goal.figure, wanted)} a core, here {_amount(goal.figure, best)}"
    )


def _amount(name: str, value: float) -> str:
    return f"{value:,.0f} pairs/s" if name == SYSTEM_CALLS else f"{value:.1f} MB/s"
