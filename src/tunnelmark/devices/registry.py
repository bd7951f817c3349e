"""Which devices there are, and what a study may set of them."""

from typing import Any, Final, Literal

from pydantic import Field, create_model

from tunnelmark.devices.profiles import PROFILES, Device
from tunnelmark.model.params import Params

Calibration = Literal[
    "AES-128-CBC",
    "AES-256-CBC",
    "AES-256-GCM",
    "ChaCha20-Poly1305",
    "BF-CBC",
    "DES-EDE3-CBC",
    "SHA1",
    "system calls",
]
"""What a limit may be calibrated to, where the device's profile has a figure for it."""


class HostParams(Params):
    """The machine as it is: nothing to set."""


class DeviceParams(Params):
    """Where the device stands, and which of its figures must be met."""

    endpoint: Literal["client", "server", "both"] = Field(
        "client", description="endpoint whose CPU is limited"
    )
    calibrate: Calibration = Field(
        "AES-128-CBC",
        description="the figure that the limit matches within 5 %: what the study's tunnels spend "
        "their time on; the others are measured and reported",
    )


DEVICES: Final = {device.kind: device for device in PROFILES}
"""Devices by kind, ``host`` first."""


def params_type(kind: str) -> type[Params]:
    """Return what a study may set of a device: it is calibrated to figures that it has."""
    return _PARAMS[kind]


def _limited(device: Device) -> type[DeviceParams]:
    field = DeviceParams.model_fields["calibrate"]
    known: Any = Literal[tuple(device.figures)]
    return create_model(
        "DeviceParams",
        __base__=DeviceParams,
        __module__=__name__,
        calibrate=(known, Field(field.default, description=field.description)),
    )


_PARAMS: Final = {
    kind: _limited(device) if device.limited else HostParams for kind, device in DEVICES.items()
}
