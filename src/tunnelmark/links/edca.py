"""How an access category of a WLAN contends for the medium (IEEE Std 802.11-2020)."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs


class Edca(Params):
    """How an access category contends (9.4.2.28)."""

    aifsn: Annotated[int, Field(ge=1, le=15)] = Field(
        description="arbitration interframe space number"
    )
    cw_min: Annotated[int, Field(ge=0, le=32767)] = Field(
        description="smallest contention window, a power of two less one"
    )
    cw_max: Annotated[int, Field(ge=0, le=32767)] = Field(
        description="largest contention window, a power of two less one"
    )
    txop_limit: Annotated[DurationNs, Field(ge=0, le=65535 * 32_000)] = Field(
        0, description="TXOP limit, a multiple of 32 us; 0 is one frame exchange"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name, window in (("cw_min", self.cw_min), ("cw_max", self.cw_max)):
            if (window + 1) & window:
                raise ValueError(f"{name} is {window}, must be a power of two less one")
        if self.cw_min > self.cw_max:
            raise ValueError(f"cw_min is {self.cw_min}, must be at most cw_max, {self.cw_max}")
        if self.txop_limit % 32_000:
            raise ValueError(f"txop_limit is {self.txop_limit} ns, must be a multiple of 32 us")
        return self

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {
            "aifsn": self.aifsn,
            "cw_min": self.cw_min,
            "cw_max": self.cw_max,
            "txop_limit_ns": self.txop_limit,
        }
