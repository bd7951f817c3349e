"""No link model: both ends joined by the kernel, as fast as this computer carries."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from tunnelmark.links.base import Link
from tunnelmark.model.params import Params


class DirectParams(Params):
    """A direct connection."""

    mtu: Annotated[int, Field(ge=576, le=9000)] = Field(1500, description="MTU in bytes")


class Direct(Link):
    """A pair of virtual Ethernet interfaces with their offloads on, and nothing between.

    For baselines of 1 to 10 Gbit/s, where the emulator would be what is measured. Nothing counts
    the frames: rates on the wire and the place of a loss on the link are not known.
    """

    kind: ClassVar[str] = "direct"
    title: ClassVar[str] = "Direct connection"
    params_type: ClassVar[type[Params]] = DirectParams
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"direct": {}}
    params: DirectParams

    @property
    def mtu_bytes(self) -> int:
        """MTU at both ends."""
        return self.params.mtu

    def spec(self, seed: int) -> None:  # noqa: ARG002 - there is nothing to draw
        """Return that there is nothing to emulate."""
        return
