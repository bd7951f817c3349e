"""The highest rate without loss, for whatever can be run at a rate."""

from collections.abc import Callable

LOSS_FREE = 0.0005
"""A run with at most this loss counts as loss-free: a single interrupt of a shared machine."""
LOST = f"at most {100 * LOSS_FREE:g} % lost"
"""As the page says it."""
_TOP = 0.97
"""Where the last step of a search that never failed comes to: the end of its range is not tried."""
_STEPS = 8
"""Resolves a range of one to ten to 1 %."""


def best_rate(run: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return the highest rate received without loss; ``run`` gives (loss ratio, rate received)."""
    best, top = 0.0, high
    for _ in range(_STEPS):
        rate = (low * high) ** 0.5
        loss, received = run(rate)
        # A sender that cannot reach the rate it was asked for has found its limit.
        if loss <= LOSS_FREE and received >= 0.97 * rate:
            best, low = max(best, received), rate
        else:
            best = max(best, received if loss <= LOSS_FREE else 0.0)
            high = rate
    if best > _TOP * top:
        raise RuntimeError(f"{best:,.0f} of at most {top:,.0f} reached: the range is too small")
    return best
