"""Two groups of repeats to one estimate of how they differ, paired wherever the design allows."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from tunnelmark.analysis.cells import Cell, Off, Slot
from tunnelmark.analysis.testing import OneSided, Quantity, Spread, combined, is_certain, spread
from tunnelmark.model.block import Stratum
from tunnelmark.model.metrics import METRICS

_FEWEST_PAIRS: Final = 2
_Scale = Callable[[float], float]
_LOSSES: Final = frozenset({"loss_forward_ratio", "loss_reverse_ratio"})


@dataclass(frozen=True)
class Contrast:
    """How the first cell's mean differs from the second's."""

    spread: Spread
    """Logarithm of the ratio, or difference in the metric's unit; see ``quantity``."""
    quantity: Quantity
    method: str


def contrast(first: Cell, second: Cell, metric: str, *, absolute: bool = False) -> Contrast:
    """Return the contrast of two cells of one metric.

    Rates and times are compared as ratios (on logarithms) unless ``absolute``. In order of
    preference, decided by the design and never by the figures:

    1. paired, where both were measured in the same block and repeat (Student's paired t);
    2. each against the baseline of its own block and repeat, where both have the same baseline:
       what drifted between the blocks falls out (Welch's t of the two);
    3. Welch's t of the plain figures.

    Losses without any scatter are compared by their packets (Agresti and Caffo 2000).
    """
    logarithmic = not absolute and on_logarithms(metric, [*first.values, *second.values])
    quantity: Quantity = "ratio" if logarithmic else "difference"
    scale: _Scale = math.log if logarithmic else float
    slots = [slot for slot in first.figures if slot in second.figures]
    if (by_packets := _losses(first, second, metric)) is not None:
        return Contrast(by_packets, quantity, "Agresti-Caffo, packets")
    if len(slots) >= _FEWEST_PAIRS:
        own = {slot: scale(first.figures[slot]) - scale(second.figures[slot]) for slot in slots}
        off = _both(first.off, second.off, logarithmic=logarithmic)
        return Contrast(measured(own, metric, first, off), quantity, "t, paired")
    if first.baseline_id is not None and first.baseline_id == second.baseline_id:
        cells = (first, second)
        enough = min(len(cell.figures) for cell in cells) >= _FEWEST_PAIRS
        whole = enough and all(cell.figures.keys() <= cell.baseline.keys() for cell in cells)
        if whole:
            of_effects = effects(first, second, metric, absolute=absolute)
            if of_effects.quantity == quantity:
                return of_effects
    parts = [{s: scale(v) for s, v in cell.figures.items()} for cell in (first, second)]
    offs = [cell.off.on(logarithmic=logarithmic) for cell in (first, second)]
    found = _welch(zip(parts, offs, strict=True), metric, first)
    return Contrast(found, quantity, "Welch")


def effects(first: Cell, second: Cell, metric: str, *, absolute: bool = False) -> Contrast:
    """Return how two effects differ: each repeat over, or minus, the baseline beside it (Welch).

    Each repeat must have one.
    """
    cells = (first, second)
    used = [value for cell in cells for value in (*cell.values, *cell.baseline.values())]
    logarithmic = not absolute and on_logarithms(metric, used)
    scale: _Scale = math.log if logarithmic else float
    parts = [
        {slot: scale(value) - scale(cell.baseline[slot]) for slot, value in cell.figures.items()}
        for cell in cells
    ]
    quantity: Quantity = "ratio" if logarithmic else "difference"
    offs = [_both(cell.off, cell.baseline_off, logarithmic=logarithmic) for cell in cells]
    found = _welch(zip(parts, offs, strict=True), metric, first)
    return Contrast(found, quantity, "Welch, each to its baseline")


def scaled_difference(first: Cell, second: Cell, share: float, metric: str) -> tuple[Spread, str]:
    """Return the first mean minus ``share`` times the second's: a relative margin, unlogged."""
    slots = [slot for slot in first.figures if slot in second.figures]
    if len(slots) >= _FEWEST_PAIRS:
        own = {s: first.figures[s] - share * second.figures[s] for s in slots}
        return measured(own, metric, first, first.off.by + share * second.off.by), "t, paired"
    parts = [measured(cell.figures, metric, cell, cell.off.by) for cell in (first, second)]
    return combined(parts, [1, -share]), "Welch"


def one_cell(cell: Cell, metric: str, *, limit: float, side: Literal[1, -1], what: str) -> OneSided:
    """Return the test of a cell's mean against a limit in the metric's unit.

    A loss that is the same in every repeat (mostly: none) is judged by its packets.
    """
    values = cell.values
    hits = None if cell.packets is None else cell.packets.lost(metric)
    if hits is not None and min(values) == max(values):
        share = Spread(hits[0] / hits[1], None, 0, len(values))
        return OneSided(what, share, limit, side, "value", "exact binomial, packets", packets=hits)
    logarithmic = limit > 0 and on_logarithms(metric, values)
    scale: _Scale = math.log if logarithmic else float
    own = {slot: scale(v) for slot, v in cell.figures.items()}
    found = measured(own, metric, cell, cell.off.on(logarithmic=logarithmic))
    method = "t on logarithms" if logarithmic else "t"
    at = scale(limit)
    return OneSided(what, found, at, side, "value", method, logarithmic=logarithmic)


def measured(figures: Mapping[Slot, float], metric: str, cell: Cell, off: float) -> Spread:
    """Return mean and standard error of repeats of a cell, or of what was computed from them.

    ``off`` is how far all of them may be off the same way, on their scale.
    """
    ups, workers = [slot[:3] for slot in figures], [slot[0] for slot in figures]
    found = spread(list(figures.values()), ups, workers)
    simulated = cell.stratum is Stratum.SIMULATION
    # Of a length on the wire one figure, which has no error, is enough.
    alone = found.error is None and is_certain(metric, simulated=False)
    if alone or (found.error == 0 and is_certain(metric, simulated=simulated)):
        return replace(found, error=0.0, freedom=math.inf, bias=off)
    return replace(found, bias=off)


def on_logarithms(metric: str, values: Sequence[float]) -> bool:
    """Say whether a metric is judged on logarithms: its scale says so, and all are above 0."""
    known = METRICS.get(metric)
    return known is not None and known.scale == "log" and min(values, default=0) > 0


def _losses(first: Cell, second: Cell, metric: str) -> Spread | None:
    """Return the difference of two losses by packets if neither scatters between the trials.

    One that does shows that its packets are not lost one by one: then only trials count.
    """
    if metric not in _LOSSES or first.packets is None or second.packets is None:
        return None
    if min(len(first.figures), len(second.figures)) < _FEWEST_PAIRS:
        return None
    if any(min(cell.values) < max(cell.values) for cell in (first, second)):
        return None
    one, other = first.packets.lost(metric), second.packets.lost(metric)
    if one is None or other is None:
        return None
    # One lost and one arrived packet more on each side: without them 0 of 300 would not scatter.
    shares = [(lost + 1) / (entered + 2) for lost, entered in (one, other)]
    variance = math.fsum(
        share * (1 - share) / (entered + 2)
        for share, (_, entered) in zip(shares, (one, other), strict=True)
    )
    repeats = min(len(first.figures), len(second.figures))
    return Spread(shares[0] - shares[1], math.sqrt(variance), math.inf, repeats)


def _both(first: Off, second: Off, *, logarithmic: bool) -> float:
    """Return how far a difference may be off, whichever way each of the two is."""
    return first.on(logarithmic=logarithmic) + second.on(logarithmic=logarithmic)


def _welch(parts: Iterable[tuple[Mapping[Slot, float], float]], metric: str, cell: Cell) -> Spread:
    """Return the difference of two groups, each with how far all of it may be off."""
    return combined([measured(figures, metric, cell, off) for figures, off in parts], [1, -1])
