"""Which devices there are, and what a study may set of them."""

from typing import Final, Literal

from pydantic import Field

from tunnelmark.devices.profiles import PROFILES
from tunnelmark.model.params import Params

Calibration = Literal[
    "AES-128-CBC", "AES-256-CBC", "BF-CBC", "DES-EDE3-CBC", "SHA1", "system calls"
]
"""What a limit may be calibrated to; a profile has a figure for each."""


class HostParams(Params):
    """The machine as it is: nothing to set."""


class DeviceParams(Params):
    """Where the device stands, and which of its figures must be met."""

    endpoint: Literal["client", "server", "both"] = Field(
        "client", description="whose CPU is limited"
    )
    calibrate: Calibration = Field(
        "AES-128-CBC",
        description="the figure that the limit meets within 5 %: what the study's tunnels spend "
        "their time on; the others are measured and told",
    )


DEVICES: Final = {device.kind: device for device in PROFILES}
"""Devices by kind, ``host`` first."""


def params_type(kind: str) -> type[Params]:
    """Return what a study may set of a device."""
    return DeviceParams if DEVICES[kind].limited else HostParams
