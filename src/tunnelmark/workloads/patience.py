"""How long a load of so many bytes may take before its trial has failed; pure."""

from typing import Final

from tunnelmark.engine.link import AnyLinkSpec, LinkSpec

_UNKNOWN_RATE_BIT_S: Final = 1_000_000
"""Where the link has no rate, the limit is derived from this one."""
_TIMES: Final = 10
_BASE_LIMIT_S: Final = 60.0
_EACH_LIMIT_S: Final = 5.0


def patience_s(
    link: AnyLinkSpec | None, payload_bytes: int, *, things: int, pace_s: float = 0.0
) -> float:
    """Return seconds: a minute, 5 s a thing, and ten times what the link, or a pace, needs."""
    needed_s = max(pace_s, payload_bytes * 8 / _rate_bit_s(link))
    return _BASE_LIMIT_S + things * _EACH_LIMIT_S + _TIMES * needed_s


def _rate_bit_s(link: AnyLinkSpec | None) -> float:
    if isinstance(link, LinkSpec):
        rates = [d.rate_bit_s for d in (link.a_to_b, link.b_to_a) if d.rate_bit_s]
        return min(rates, default=_UNKNOWN_RATE_BIT_S)
    return _UNKNOWN_RATE_BIT_S
