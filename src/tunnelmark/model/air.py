"""How frames on air are distinguished where Ethernet has a type: by what protects them."""

from typing import Final, Literal

AirCipher = Literal["open", "wep", "tkip", "ccmp"]

AIR_TYPES: Final[dict[AirCipher, int]] = {
    "open": 0x1_0000,
    "wep": 0x1_0001,
    "tkip": 0x1_0002,
    "ccmp": 0x1_0003,
}
"""802.11 data by its encryption, as ``WireRule.ether_types``; no Ethernet type is so large."""
AIR_HOUSEKEEPING: Final = 0x1_0010
"""Management, control, data without a body."""
AIR_UNKNOWN: Final = 0x1_0011
"""Protected, but by none of these ciphers; or no 802.11 frame at all."""
FCS_BYTES: Final = 4
"""Frame check sequence, which captures leave out (IEEE Std 802.11-2020 9.2.4.8)."""
