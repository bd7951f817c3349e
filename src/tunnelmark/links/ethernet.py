"""Ethernet, with what a frame really costs on the line."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from tunnelmark.links.wire import WireLink, WireParams
from tunnelmark.model.params import Params


class EthernetParams(WireParams):
    """Ethernet."""

    rate: Literal["10 Mbit/s", "100 Mbit/s", "1 Gbit/s", "10 Gbit/s"] = Field(
        description="line rate, as the standard has them"
    )


class Ethernet(WireLink):
    """Ethernet: FCS, preamble and inter-frame gap cost time, a frame has at least 64 bytes."""

    kind: ClassVar[str] = "ethernet"
    title: ClassVar[str] = "Ethernet"
    params_type: ClassVar[type[Params]] = EthernetParams
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "ethernet-10": {"rate": "10 Mbit/s"},
        "ethernet-100": {"rate": "100 Mbit/s"},
        "ethernet-1000": {"rate": "1 Gbit/s"},
    }
    # IEEE Std 802.3-2018: FCS 4 (3.2.9), preamble and delimiter 8 (3.2.1, 3.2.2), gap 12 (4.4.2)
    frame_overhead_bytes: ClassVar[int] = 24
    frame_min_bytes: ClassVar[int] = 84
    params: EthernetParams

    def rates_bit_s(self) -> tuple[int, int]:
        """Return the line rate both ways."""
        number, unit = self.params.rate.split()
        rate = int(number) * (10**9 if unit == "Gbit/s" else 10**6)
        return rate, rate
