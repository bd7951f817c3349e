"""Which devices there are, and what a study may set of them."""

from typing import Any, Final, Literal

from pydantic import Field, create_model

from tunnelmark.devices.profiles import PROFILES, Device
from tunnelmark.model.params import Params
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Side

TUNNEL_CIPHER: Final = "tunnel cipher"

Calibration = Literal[
    "tunnel cipher",
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
        TUNNEL_CIPHER,
        description="the figure that the limit matches within 5 %; tunnel cipher: for each tunnel "
        "that of its own cipher, by the library that its program uses",
    )


DEVICES: Final = {device.kind: device for device in PROFILES}
"""Devices by kind, ``host`` first."""
_ENDPOINTS: Final[dict[str, tuple[Side, ...]]] = {
    "client": ("client",),
    "server": ("server",),
    "both": ("client", "server"),
}


def is_limited(spec: DriverSpec) -> bool:
    """Say whether a device of a study is anything but this machine as it is."""
    return DEVICES[spec.kind].limited


def roles_of(spec: DriverSpec) -> tuple[Side, ...]:
    """Return the endpoints that stand on a device of a study."""
    return _ENDPOINTS[device_params(spec).endpoint] if is_limited(spec) else ()


def device_params(spec: DriverSpec) -> DeviceParams:
    """Return what a study sets of a device that is limited."""
    params = params_type(spec.kind).model_validate(dict(spec.params))
    assert isinstance(params, DeviceParams)  # noqa: S101 - of a device that is limited
    return params


def params_type(kind: str) -> type[Params]:
    """Return what a study may set of a device: it is calibrated to figures that it has."""
    return _PARAMS[kind]


def _limited(device: Device) -> type[DeviceParams]:
    field = DeviceParams.model_fields["calibrate"]
    known: Any = Literal[(TUNNEL_CIPHER, *device.figures)]
    return create_model(
        "DeviceParams",
        __base__=DeviceParams,
        __module__=__name__,
        calibrate=(known, Field(field.default, description=field.description)),
    )


_PARAMS: Final = {
    kind: _limited(device) if device.limited else HostParams for kind, device in DEVICES.items()
}
