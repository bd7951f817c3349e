"""Claims about the shape of a curve to the tests that they consist of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from tunnelmark.analysis.cells import Cell, name_of
from tunnelmark.analysis.contrasts import contrast, measured, on_logarithms
from tunnelmark.analysis.testing import Claim, OneSided, Part, combined
from tunnelmark.model.hypothesis import Hypothesis

Side = Literal[1, -1]

_RISING: Final = frozenset({"rises_with", "rises_steadily", "rises_past", "peaks_at"})


@dataclass(frozen=True)
class Nothing:
    """Why a run says nothing of a hypothesis."""

    reason: str


def shape(
    hypothesis: Hypothesis,
    cells: Sequence[Cell],
    fragmentation: Mapping[tuple[str, str, str], int],
) -> Part | Nothing:
    """Return the tests of a shape: it is claimed of every curve that the cells make.

    ``fragmentation`` is the largest payload in one packet by (link, device, tunnel).
    """
    along = "" if hypothesis.along is None else hypothesis.along
    curves: dict[str, list[tuple[float, Cell]]] = {}
    for cell in cells:
        level = cell.params.get(along)
        if isinstance(level, bool) or not isinstance(level, int | float):
            continue
        rest = sorted((k, v) for k, v in cell.params.items() if k != along)
        names = [cell.names[axis] for axis in ("tunnel", "link", "device")]
        key = repr([*names, cell.stratum, cell.apart, cell.kinds["workload"], rest])
        curves.setdefault(key, []).append((float(level), cell))
    parts: list[Part] = []
    for entries in curves.values():
        levels = tuple(sorted(entries, key=lambda entry: entry[0]))
        if len(levels) < 2:  # noqa: PLR2004 - a shape needs two levels
            continue
        side: Side = 1 if hypothesis.shape in _RISING else -1
        part = _Curve(hypothesis, levels, side).part(fragmentation)
        if isinstance(part, Nothing):
            return part
        parts.append(part)
    if not parts:
        return Nothing(f"no place has measurements at two values of {along}")
    return together(parts)


def together(parts: Sequence[Part]) -> Part:
    """Return the claim that all parts hold."""
    return parts[0] if len(parts) == 1 else Claim("all", tuple(parts))


@dataclass(frozen=True)
class _Curve:
    hypothesis: Hypothesis
    levels: tuple[tuple[float, Cell], ...]
    """By the value along which the shape is claimed, smallest first."""
    side: Side

    def part(self, fragmentation: Mapping[tuple[str, str, str], int]) -> Part | Nothing:
        shape = self.hypothesis.shape
        if shape in ("rises_with", "falls_with"):
            return self._slope()
        if shape in ("rises_steadily", "falls_steadily"):
            return together([self._step(b, a) for a, b in pairwise(range(len(self.levels)))])
        at = self.hypothesis.at
        if not isinstance(at, int | float):
            names = self.levels[0][1].names
            at = fragmentation.get((names["link"], names["device"], names["tunnel"]))
        if at is None:
            return Nothing(f"the captures show no fragmentation point of {self._place}")
        return self._peak(at) if shape == "peaks_at" else self._past(at)

    @property
    def _place(self) -> str:
        return name_of(self.levels[0][1], without=("workload",))

    @property
    def _along(self) -> str:
        return self.hypothesis.along or ""

    def _peak(self, at: float) -> Part | Nothing:
        peak = next((i for i, (level, _) in enumerate(self.levels) if level == at), None)
        if peak is None:
            return Nothing(f"{self._along} {at:g} was not measured: {self._place}")
        return together([self._step(peak, i) for i in range(len(self.levels)) if i != peak])

    def _past(self, at: float) -> Part | Nothing:
        below = [i for i, (level, _) in enumerate(self.levels) if level <= at]
        above = [i for i, (level, _) in enumerate(self.levels) if level > at]
        if not below or not above:
            return Nothing(f"{self._along} was not measured on both sides of {at:g}: {self._place}")
        return self._step(above[0], below[-1])

    def _step(self, to: int, start: int) -> OneSided:
        (level, first), (other, second) = self.levels[to], self.levels[start]
        found = contrast(first, second, self.hypothesis.metric)
        return OneSided(
            f"{self._along} {level:g} against {other:g}, {self._place}",
            found.spread,
            0.0,
            self.side,
            found.quantity,
            found.method,
            inclusive=False,
            logarithmic=found.quantity == "ratio",
        )

    def _slope(self) -> OneSided:
        """Return the linear contrast over the levels: the least-squares slope of their means."""
        metric, levels = self.hypothesis.metric, self.levels
        logarithmic = on_logarithms(metric, [v for _, cell in levels for v in cell.values])
        means = [
            measured(
                {s: math.log(v) if logarithmic else v for s, v in cell.figures.items()},
                metric,
                cell,
                cell.off.on(logarithmic=logarithmic),
            )
            for _, cell in levels
        ]
        centre = math.fsum(level for level, _ in levels) / len(levels)
        square = math.fsum((level - centre) ** 2 for level, _ in levels)
        return OneSided(
            f"slope along {self._along} over {len(levels)} values, {self._place}",
            combined(means, [(level - centre) / square for level, _ in levels]),
            0.0,
            self.side,
            "relative_slope" if logarithmic else "slope",
            "linear contrast, Welch-Satterthwaite",
            inclusive=False,
            logarithmic=logarithmic,
        )
