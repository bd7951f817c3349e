"""A serial line: its rate counts IP packets."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tunnelmark.links.wire import WireLink, WireParams
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import RateBitS


class SerialParams(WireParams):
    """A serial line."""

    rate: RateBitS = Field(description="rate at which IP packets are serialized")
    rate_reverse: RateBitS | None = Field(None, description="rate towards the client")


class Serial(WireLink):
    """A serial line: its rate counts IP packets."""

    kind: ClassVar[str] = "serial"
    title: ClassVar[str] = "Serial line"
    params_type: ClassVar[type[Params]] = SerialParams
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        # pptp-vs-ssl-2011: its two links, by rate and round trip
        "serial-8m-41ms": {"rate": "8 Mbit/s", "delay": "20.5 ms"},
        "serial-2m-115ms": {"rate": "2 Mbit/s", "delay": "57.5 ms"},
    }
    frame_overhead_bytes: ClassVar[int] = -14
    frame_min_bytes: ClassVar[int] = 0
    params: SerialParams

    def rates_bit_s(self) -> tuple[int, int]:
        """Return the rates forward and reverse."""
        rate = self.params.rate
        return rate, self.params.rate_reverse or rate
