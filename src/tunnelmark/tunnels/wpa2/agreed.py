"""Whether both sides say what the study asks for. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tunnelmark.tunnels.wpa2.config import Radio, Security
from tunnelmark.tunnels.wpa2.says import Bitrate, Channel, cipher_of, key_management_of


def disagreement(
    security: Security,
    radio: Radio,
    client: Mapping[str, str],
    server: Mapping[str, str],
    channels: Mapping[str, Channel | None],
) -> str | None:
    """Return the first thing that a side says and the study does not ask for, or None.

    ``client`` is wpa_supplicant's status, ``server`` what hostapd says of the station, ``channels``
    what iw says on either side.
    """
    wanted = _AGREED[security]
    compared: dict[str, tuple[str | None, str]] = {
        "wpa_supplicant: pairwise cipher": (client.get("pairwise_cipher"), wanted.client_cipher),
        "wpa_supplicant: key management": (client.get("key_mgmt"), wanted.key_management),
        "wpa_supplicant: frequency": (client.get("freq"), str(radio.frequency_mhz)),
    }
    selected = server.get("dot11RSNAStatsSelectedPairwiseCipher")
    key = server.get("AKMSuiteSelector")
    # hostapd says neither of a station without WPA: that is compared too.
    compared["hostapd: pairwise cipher"] = (
        "none" if selected is None else cipher_of(selected),
        wanted.server_cipher,
    )
    compared["hostapd: key management"] = (
        "none" if key is None else key_management_of(key),
        wanted.key_management if wanted.server_cipher != "none" else "none",
    )
    for side, seen in channels.items():
        compared[f"iw on {side}: width"] = (
            None if seen is None else _width(seen.width_mhz, ht=seen.ht),
            _width(radio.width_mhz, ht=radio.ht),
        )
        compared[f"iw on {side}: frequency"] = (
            None if seen is None else str(seen.frequency_mhz),
            str(radio.frequency_mhz),
        )
    return next(
        (
            f"{what} is {got!r}, the study asks for {asked!r}"
            for what, (got, asked) in compared.items()
            if got != asked
        ),
        None,
    )


def is_wanted(rate: Bitrate, radio: Radio) -> bool:
    """Whether a radio has come to the link's rate."""
    if radio.mcs is None:
        return rate.mcs is None and rate.mbit_s * 1e6 == max(radio.rates_bit_s)
    return (rate.mcs, rate.width_mhz, rate.short_guard) == (
        radio.mcs,
        radio.width_mhz,
        radio.short_guard,
    )


def air_cipher(security: Security) -> str | None:
    """Return the cipher of frames of data as wpa_supplicant names it; None: none."""
    cipher = _AGREED[security].client_cipher
    return None if cipher == "NONE" else cipher


@dataclass(frozen=True)
class _Agreed:
    """What both sides must say."""

    client_cipher: str
    server_cipher: str
    key_management: str


_AGREED: Final[dict[Security, _Agreed]] = {
    "open": _Agreed("NONE", "none", "NONE"),
    "wep": _Agreed("WEP-104", "none", "NONE"),
    "wpa2-tkip": _Agreed("TKIP", "TKIP", "WPA2-PSK"),
    "wpa2-ccmp": _Agreed("CCMP", "CCMP", "WPA2-PSK"),
    "wpa3-sae": _Agreed("CCMP", "CCMP", "SAE"),
}


def _width(width_mhz: int, *, ht: bool) -> str:
    return f"{width_mhz} MHz{'' if ht else ', no HT'}"
