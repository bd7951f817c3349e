"""What a frame on air has around an IP packet."""

from collections.abc import Mapping
from typing import Final

from tunnelmark.model.overhead import Layer
from tunnelmark.tunnels.wpa2.config import Security


def frame_layers(security: Security, *, qos: bool) -> tuple[Layer, ...]:
    """Return the layers of a data frame to or from an access point, not fragmented."""
    return (
        Layer("802.11 MAC header", 24, "IEEE Std 802.11-2020, 9.3.2.1"),
        *((Layer("QoS control", 2, "IEEE Std 802.11-2020, 9.2.4.5"),) if qos else ()),
        *_CIPHER[security],
        Layer("LLC and SNAP", 8, "IEEE Std 802.11-2020, 5.1.4"),
        Layer("FCS", 4, "IEEE Std 802.11-2020, 9.2.4.8"),
    )


_CCMP: Final = (
    Layer("CCMP header", 8, "IEEE Std 802.11-2020, 12.5.3.2"),
    Layer("CCMP MIC", 8, "IEEE Std 802.11-2020, 12.5.3.2"),
)
_CIPHER: Final[Mapping[Security, tuple[Layer, ...]]] = {
    "open": (),
    "wep": (
        Layer("WEP IV", 4, "IEEE Std 802.11-2020, 12.3.2.2"),
        Layer("WEP ICV", 4, "IEEE Std 802.11-2020, 12.3.2.2"),
    ),
    "wpa2-tkip": (
        Layer("TKIP IV and extended IV", 8, "IEEE Std 802.11-2020, 12.5.2.2"),
        Layer("TKIP MIC", 8, "IEEE Std 802.11-2020, 12.5.2.2"),
        Layer("TKIP ICV", 4, "IEEE Std 802.11-2020, 12.5.2.2"),
    ),
    "wpa2-ccmp": _CCMP,
    "wpa3-sae": _CCMP,
}
