"""Whether what goes over the link can be ciphertext: it repeats nothing and uses every byte alike.

The marker shows plaintext that was left as it is. A cipher in name only (a constant added to each
byte, another alphabet) hides the marker; but what is the same twice then looks the same twice, or
does not use all 256 values. Neither proves that a cipher is good; either proves that it is none.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tunnelmark.model.quantity import percent
from tunnelmark.probes.attribution import Probe

HEAD_BYTES: Final = 64
"""What is left out of each packet: headers of the tunnel and of the test packet inside it."""
LEAST_ENTROPY_BITS: Final = 7.5
"""Per byte. Ciphertext has 8, with the headers of a record every 100 bytes 7.8; base64 has 6."""
MOST_EQUAL_RATIO: Final = 0.25
"""Of the bytes of two packets that carry the same payload. Ciphertext has 1/256."""


@dataclass
class Ciphertext:
    """Collects the bodies of packets that carried probes, and judges them at the end."""

    _bodies: dict[tuple[int, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """By payload size and length of the packet."""
    _values: Counter[int] = field(default_factory=Counter)

    def add(self, probes: Sequence[Probe], bodies: Sequence[Sequence[bytes]]) -> None:
        """Take what followed the IP header in the packets of each probe, in order of sending.

        A probe that took several packets serves for its values alone: where its pieces begin is
        not known of each of them.
        """
        for probe, parts in zip(probes, bodies, strict=True):
            for part in parts:
                self._values.update(part[HEAD_BYTES:])
            if len(parts) == 1 and len(parts[0]) >= HEAD_BYTES + _LEAST_BODY_BYTES:
                kept = self._bodies[probe.payload_bytes, len(parts[0])]
                if len(kept) < _MOST_BODIES:
                    kept.append(parts[0][HEAD_BYTES:])

    def faults(self) -> list[str]:
        """Return why it cannot be ciphertext, in sentences with figures; none for too few bytes."""
        return [fault for fault in (self._unused(), self._repeated()) if fault]

    def _unused(self) -> str | None:
        count = self._values.total()
        if count < _LEAST_VALUES:
            return None
        entropy = -sum(n / count * math.log2(n / count) for n in self._values.values())
        if entropy >= LEAST_ENTROPY_BITS:
            return None
        return (
            f"the packets are not ciphertext: their {count} bytes have {entropy:.2f} bits of "
            f"entropy each, a cipher has at least {LEAST_ENTROPY_BITS:g}"
        )

    def _repeated(self) -> str | None:
        pairs = [
            (first, second)
            for bodies in self._bodies.values()
            for first, second in pairwise(bodies)
        ]
        shares = [
            sum(a == b for a, b in zip(first, second, strict=True)) / len(first)
            for first, second in pairs
        ]
        alike = [share for share in shares if share > MOST_EQUAL_RATIO]
        # One pair may be a packet that was sent again; a cipher that repeats itself does so always.
        if len(alike) < _LEAST_PAIRS or len(alike) * 2 <= len(shares):
            return None
        return (
            f"the packets are not ciphertext: in {len(alike)} of {len(shares)} pairs that carried "
            f"the same payload {percent(max(alike))} of the bytes are the same, with a cipher at "
            f"most {percent(MOST_EQUAL_RATIO)}"
        )


_LEAST_VALUES: Final = 4096
_LEAST_BODY_BYTES: Final = 64
_LEAST_PAIRS: Final = 3
_MOST_BODIES: Final = 16
