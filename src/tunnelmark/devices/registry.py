"""CPU profiles of endpoints."""

from dataclasses import dataclass
from typing import Final

from tunnelmark.model.params import Params


class DeviceParams(Params):
    """A device is chosen by its kind alone."""


@dataclass(frozen=True)
class Device:
    """An endpoint's CPU."""

    kind: str
    title: str
    source: str
    """Where the figures come from."""


DEVICES: Final = {
    device.kind: device
    for device in (Device("host", "this machine, without a limit", "no limit is set"),)
}
"""Devices by kind."""
