"""Profiles: the published figures as they were printed, everything else marked as an estimate."""

from typing import get_args

import pytest
from pydantic import ValidationError

from tunnelmark.devices.profiles import PROFILES, Device
from tunnelmark.devices.registry import (
    DEVICES,
    TUNNEL_CIPHER,
    Calibration,
    DeviceParams,
    HostParams,
    params_type,
)

_CALIBRATIONS = [name for name in get_args(Calibration) if name != TUNNEL_CIPHER]
_PRINTED = {
    ("pi-zero", "AES-128-CBC"): 22.2,
    ("pi-zero", "AES-256-CBC"): 17.3,
    ("pi-b", "AES-128-CBC"): 15.7,
    ("pi-b", "AES-256-CBC"): 12.1,
    ("pi-b", "BF-CBC"): 13.4,
    ("pi-b", "SHA1"): 30.1,
    ("pi-2", "AES-128-CBC"): 21.7,
    ("pi-2", "AES-256-CBC"): 16.4,
    ("pi-2", "BF-CBC"): 19.6,
    ("pi-2", "SHA1"): 43.4,
    ("pi-3", "AES-128-CBC"): 47.9,
    ("pi-3", "AES-256-CBC"): 36.2,
    ("pi-3", "BF-CBC"): 37.6,
    ("pi-3", "SHA1"): 90.9,
    ("pi-4", "AES-128-CBC"): 50.6,
    ("pi-4", "AES-256-CBC"): 36.3,
    ("pi-5", "AES-128-CBC"): 1907.6,
    ("pi-5", "AES-256-CBC"): 1365.2,
    ("pi-5", "AES-256-GCM"): 1102.2,
    ("pi-5", "ChaCha20-Poly1305"): 478.7,
}

limited = pytest.mark.parametrize(
    "device", [device for device in PROFILES if device.limited], ids=lambda device: device.kind
)


def test_the_presets() -> None:
    assert list(DEVICES) == [
        *("host", "pc-300mhz", "pc-1700mhz", "core2duo-1870", "amd-e450"),
        *("pi-zero", "pi-b", "pi-2", "pi-3", "pi-4", "pi-5", "mt7621", "n100"),
    ]


@pytest.mark.parametrize(("kind", "name"), _PRINTED)
def test_published_speeds_are_no_estimates(kind: str, name: str) -> None:
    figure = DEVICES[kind].figure(name)
    assert (figure.value, figure.estimate) == (_PRINTED[kind, name], False)


def test_wireguard_on_the_boards() -> None:
    known = {d.kind: d.wireguard_bit_s.value for d in PROFILES if d.wireguard_bit_s}
    assert known == {"pi-b": 16.1e6, "pi-2": 192e6, "pi-3": 522e6}


@limited
def test_every_figure_has_its_source(device: Device) -> None:
    assert set(device.figures) <= set(_CALIBRATIONS)
    for figure in device.figures.values():
        assert figure.value > 0
        assert figure.source
    assert device.core
    assert device.cores >= 1
    assert device.memory_mib > 0


@limited
def test_figures_of_pis_that_were_not_printed_are_estimates(device: Device) -> None:
    if not device.kind.startswith("pi-"):
        return
    for name in device.figures:
        assert device.figure(name).estimate == ((device.kind, name) not in _PRINTED)


@limited
def test_a_longer_key_and_a_third_round_of_des_take_longer(device: Device) -> None:
    speed = {name: figure.value for name, figure in device.figures.items()}
    assert speed["AES-256-CBC"] < speed["AES-128-CBC"]
    old = [speed[name] for name in ("DES-EDE3-CBC", "BF-CBC", "SHA1") if name in speed]
    assert old == sorted(old)


@limited
def test_without_instructions_for_aes_gcm_is_slower_than_cbc_and_chacha_faster(
    device: Device,
) -> None:
    """The reason for ChaCha20 in WireGuard; with them the order is the other way round."""
    speed = {name: figure.value for name, figure in device.figures.items()}
    if device.aes_instructions:
        assert speed["ChaCha20-Poly1305"] < speed["AES-256-GCM"]
    else:
        assert speed["AES-256-GCM"] < speed["AES-256-CBC"] < speed["ChaCha20-Poly1305"]


@limited
def test_a_device_is_calibrated_only_to_a_figure_that_it_has(device: Device) -> None:
    for name in _CALIBRATIONS:
        if name in device.figures:
            params_type(device.kind).model_validate({"calibrate": name})
        else:
            with pytest.raises(ValidationError, match="calibrate"):
                params_type(device.kind).model_validate({"calibrate": name})


def test_a_scaled_figure_follows_the_clock() -> None:
    zero, b = DEVICES["pi-zero"], DEVICES["pi-b"]
    for name in ("BF-CBC", "SHA1", "system calls"):
        assert zero.figure(name).value / b.figure(name).value == pytest.approx(1000 / 700, rel=0.01)


def test_only_a_limited_device_has_parameters() -> None:
    assert params_type("host") is HostParams
    assert issubclass(params_type("pi-3"), DeviceParams)
    assert DeviceParams().columns() == {"endpoint": "client", "calibrate": TUNNEL_CIPHER}
