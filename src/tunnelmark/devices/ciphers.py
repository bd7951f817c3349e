"""Which rate of a device's is that of a tunnel's cipher. Pure."""

from typing import Final

from tunnelmark.devices.profiles import PROFILES, SYSTEM_CALLS, Device, Figure

_FIGURE_OF: Final = {
    "3DES-SHA1": "DES-EDE3-CBC",
    "AES-128-CBC-SHA1": "AES-128-CBC",
    "AES-256-CBC-SHA256": "AES-256-CBC",
    "CHACHA20-POLY1305": "ChaCha20-Poly1305",
    "GCM-AES-256": "AES-256-GCM",
}
"""Of suites, the cipher without the hash; other names are those of the figures."""


def figure_of(cipher: str) -> str:
    """Return the name that a rate of a cipher has, if a device has one."""
    return _FIGURE_OF.get(cipher, cipher)


def has_figure(name: str) -> bool:
    """Say whether any device has a rate of that name."""
    return name != SYSTEM_CALLS and any(name in device.figures for device in PROFILES)


def rate_of(device: Device, cipher: str) -> Figure | None:
    """Return what one core of a device does of a tunnel's cipher, or None: nobody published it."""
    name = figure_of(cipher)
    return None if name == SYSTEM_CALLS else device.figures.get(name)
