"""What ``tunnelmark analyse`` reports: drift, bends, what goes together, factors, as one family."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from tunnelmark.analysis.cells import cells_of
from tunnelmark.analysis.curves import Curve, Together, curves, together
from tunnelmark.analysis.door import corrected
from tunnelmark.analysis.drift import Drift, baseline_drift
from tunnelmark.analysis.factorial import Effect, Factorial, factorial
from tunnelmark.model.metrics import METRICS

LITTLE: Final = 0.01
"""Share of the scatter below which a factor is not relevant (Cohen 1988)."""
WEAK: Final = 0.3
"""Rank correlation below which two figures have no relevant correlation (Cohen 1988)."""
_NO_RESULTS: Final = ("cpu_", "overhead_", "outer_", "compression_")


@dataclass(frozen=True)
class Exploration:
    """All of it; each p is corrected for all that was looked at, ``reported`` follows from it."""

    drift: tuple[Drift, ...]
    curves: tuple[Curve, ...]
    correlations: tuple[Together, ...]
    factorial: tuple[Factorial, ...]


def explore(
    trials: pl.DataFrame, metrics: Sequence[str], *, confidence: float, moments: int
) -> Exploration:
    """Look at all curves and factors of a result, and decide together what of it may be reported.

    ``trials`` is that of ``store.Result.trials()`` after ``set_apart``.
    """
    # Rates, losses and delays bend, and may follow from the CPU; lengths on the wire have steps.
    results = [m for m in metrics if not m.startswith(_NO_RESULTS)]
    drift = [d for m in results if (d := baseline_drift(trials, m, confidence=confidence))]
    bends = [
        curve
        for m in results
        for curve in curves(trials, m, confidence=confidence, moments=moments)
    ]
    pairs = together(trials, results, confidence=confidence)
    factors = [one for m in metrics for one in factorial(cells_of(trials, m), m)]
    raw = [
        *(one.p for one in drift),
        *(one.knee.p for one in bends if one.knee is not None),
        *(one.correlation.p for one in pairs),
        *(effect.p for one in factors for effect in one.effects),
    ]
    p = iter(corrected(raw, moments=moments))
    error = 1 - confidence

    def reported(adjusted: float, *, matters: bool) -> bool:
        return matters and adjusted <= error

    return Exploration(
        tuple(
            replace(one, p=(own := next(p)), reported=reported(own, matters=one.matters))
            for one in drift
        ),
        tuple(
            one
            if one.knee is None
            else replace(
                one,
                knee=replace(
                    one.knee, p=(own := next(p)), reported=reported(own, matters=one.knee.matters)
                ),
            )
            for one in bends
        ),
        tuple(
            replace(
                one,
                correlation=replace(
                    one.correlation,
                    p=(own := next(p)),
                    reported=reported(own, matters=abs(one.correlation.rho) >= WEAK),
                ),
            )
            for one in pairs
        ),
        tuple(
            replace(
                one,
                effects=tuple(
                    replace(
                        effect,
                        p=(own := next(p)),
                        reported=reported(own, matters=_matters(effect, one.metric)),
                    )
                    for effect in one.effects
                ),
            )
            for one in factors
        ),
    )


def _matters(effect: Effect, metric: str) -> bool:
    """Say whether a factor explains enough, and moves the metric by a relevant amount."""
    enough = effect.partial_omega_squared >= LITTLE
    return enough and effect.reach >= METRICS[metric].worth_telling
