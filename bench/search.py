"""The highest rate without loss, for whatever can be run at a rate."""

from collections.abc import Callable

LOSS_FREE = 0.0005
"""A run with at most this loss counts as loss-free: a single interrupt of a shared machine."""
_STEPS = 8
"""Resolves a range of one to ten to 1 %."""


def best_rate(run: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return the highest rate received without loss; ``run`` gives (loss ratio, rate received)."""
    best = 0.0
    for _ in range(_STEPS):
        rate = (low * high) ** 0.5
        loss, received = run(rate)
        # A sender that cannot reach the rate it was asked for has found its limit.
        if loss <= LOSS_FREE and received >= 0.97 * rate:
            best, low = max(best, received), rate
        else:
            best = max(best, received if loss <= LOSS_FREE else 0.0)
            high = rate
    return best
