"""Which batches of probes count for the lengths of packets on the link."""

from collections.abc import Sequence

from tunnelmark.probes.attribution import Probe, Votes
from tunnelmark.probes.carriers import Carrier
from tunnelmark.probes.sizes import Sizes

AROUND = 105
KNOWN = tuple(range(1360, 1370))


def batch(seen: Sizes, sizes: Sequence[int], *, shifted: int = 0) -> None:
    """Add three probes of each size; those of a shifted batch have the packet of another."""
    probes = [Probe(at, size) for at, size in enumerate([*sizes] * 3)]
    parts = [
        [Carrier(at, one.payload_bytes + AROUND - shifted, b"")] for at, one in enumerate(probes)
    ]
    seen.add(probes, parts, sure=KNOWN)


def test_a_batch_that_contradicts_what_is_known_settles_nothing() -> None:
    seen = Sizes((*KNOWN, 1370), Votes(1400), compresses=False, stream=True)
    batch(seen, KNOWN)
    # Of sizes a byte apart, the packet of the one before holds more than the payload too.
    batch(seen, (*KNOWN, 1370), shifted=1)
    assert seen.votes.agreed() == {size: (size + AROUND,) for size in KNOWN}
    batch(seen, (*KNOWN, 1370))
    assert seen.votes.agreed() == {size: (size + AROUND,) for size in (*KNOWN, 1370)}
    assert seen.bypassed is None
