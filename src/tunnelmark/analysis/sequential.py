"""What it costs that a run looks at its figures and stops when they are good enough."""

from functools import cache


@cache
def looks(min_repeats: int, max_repeats: int) -> tuple[int, ...]:
    """Return after which repeats the data are looked at; after the last there is no choice left.

    They are fixed beforehand and grow by half: few looks, so that little of the error is spent on
    each, and no more than a third of the work is in vain.
    """
    found = []
    at = min_repeats
    while at < max_repeats:
        found.append(at)
        at = max(at + 1, at + at // 2)
    return tuple(found)


def chances(min_repeats: int, max_repeats: int) -> int:
    """Return at how many moments a run may end a point: every look, and the last repeat.

    A run that ends when the figures happen to lie close together errs more often than a plain
    interval says: in simulations 95 % become 90 to 94 %. If the error is divided among all the
    moments (Bonferroni's inequality), it keeps to what was said, whatever the law of the figures
    and whichever metric the run looked at.
    """
    return len(looks(min_repeats, max_repeats)) + 1


def confidence_after(confidence: float, moments: int) -> float:
    """Return the confidence at which to form each interval, so that it keeps ``confidence``."""
    return 1 - (1 - confidence) / max(1, moments)
