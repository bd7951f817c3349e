"""What iw, wpa_cli and hostapd_cli say, read strictly. Pure functions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PAIRS_MAX: Final = 200
_WORDS_MAX: Final = 65536

_CIPHERS: Final = {
    "00-0f-ac-1": "WEP-40",
    "00-0f-ac-2": "TKIP",
    "00-0f-ac-4": "CCMP",
    "00-0f-ac-5": "WEP-104",
    "00-0f-ac-8": "GCMP",
    "00-0f-ac-9": "GCMP-256",
    "00-0f-ac-10": "CCMP-256",
}
_KEY_MANAGEMENT: Final = {
    "00-0f-ac-2": "WPA2-PSK",
    "00-0f-ac-6": "WPA2-PSK-SHA256",
    "00-0f-ac-8": "SAE",
}


@dataclass(frozen=True)
class Bitrate:
    """A rate as iw writes it."""

    mbit_s: float
    mcs: int | None
    width_mhz: int
    short_guard: bool

    def __str__(self) -> str:
        """Return it in words."""
        mcs = "" if self.mcs is None else f" MCS {self.mcs}"
        guard = " short GI" if self.short_guard else ""
        return f"{self.mbit_s:g} Mbit/s{mcs}{guard}"


@dataclass(frozen=True)
class Channel:
    """Where an interface is."""

    number: int
    frequency_mhz: int
    width_mhz: int
    ht: bool


def pairs(text: str) -> Mapping[str, str]:
    """Return the lines ``key=value`` of wpa_cli and hostapd_cli; others do not count."""
    found: dict[str, str] = {}
    for line in text[:_WORDS_MAX].splitlines()[:_PAIRS_MAX]:
        key, separator, value = line.partition("=")
        if separator and key not in found:
            found[key.strip()] = value.strip()
    return found


def cipher_of(selector: str) -> str:
    """Return the name of a cipher suite selector as hostapd writes it (9.4.2.24.2)."""
    return _CIPHERS.get(selector, selector)


def key_management_of(selector: str) -> str:
    """Return the name of an AKM suite selector as hostapd writes it (9.4.2.24.3)."""
    return _KEY_MANAGEMENT.get(selector, selector)


def channel(text: str) -> Channel | None:
    """Return the channel that ``iw dev X info`` names, None if it names none."""
    found = re.search(
        r"^\s*channel (\d{1,3}) \((\d{4,5}) MHz\), width: (\d{2,3}) MHz( \(no HT\))?",
        text[:_WORDS_MAX],
        re.MULTILINE,
    )
    if found is None:
        return None
    number, frequency, width, no_ht = found.groups()
    return Channel(int(number), int(frequency), int(width), no_ht is None)


def bitrate(text: str, direction: str) -> Bitrate | None:
    """Return the rate of ``tx`` or ``rx`` in what ``iw dev X station dump`` says of one station."""
    found = re.search(
        rf"^\s*{direction} bitrate:\s+(\d{{1,5}}(?:\.\d)?) MBit/s(.*)$",
        text[:_WORDS_MAX],
        re.MULTILINE,
    )
    if found is None:
        return None
    rest = found.group(2)
    mcs = re.search(r"\bMCS (\d{1,2})\b", rest)
    width = re.search(r"\b(\d{2,3})MHz\b", rest)
    return Bitrate(
        float(found.group(1)),
        int(mcs.group(1)) if mcs else None,
        int(width.group(1)) if width else 20,
        "short GI" in rest,
    )


def program_version(text: str) -> str:
    """Return name and version in the first line that says so: ``hostapd v2.10``."""
    found = re.search(r"^(hostapd|wpa_supplicant) v[0-9][\w.+-]{0,40}", text[:4096], re.MULTILINE)
    return found.group(0) if found else "unknown version"
