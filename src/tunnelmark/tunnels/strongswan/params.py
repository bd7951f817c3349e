"""What a study can set of every tunnel that is ESP keyed by strongSwan."""

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from tunnelmark.model.quantity import DurationNs
from tunnelmark.tunnels.esp.groups import DEFAULT_GROUP, IkeGroup, ike_proposal
from tunnelmark.tunnels.esp.params import EspParams
from tunnelmark.tunnels.esp.suites import SUITE_NAMES
from tunnelmark.tunnels.strongswan.config import Settings

_S_NS: Final = 10**9


class StrongswanParams(EspParams):
    """What a study can set of every tunnel that is ESP keyed by strongSwan."""

    udp_encapsulation: bool | None = Field(
        None,
        description="ESP inside UDP port 4500 as through a NAT; default: as the implementation "
        "needs: off in the kernel, on with libipsec",
    )
    replay_window: int | None = Field(
        None,
        ge=0,
        le=4096,
        description="window of the replay protection, in packets; 0: no protection; "
        "default: strongSwan's own, 32, or 128 with libipsec, which has no other",
    )
    ike_group: IkeGroup = Field(
        DEFAULT_GROUP,
        description="group of IKE's own key exchange; x25519-mlkem768 is hybrid (RFC 9370), "
        "against quantum computers too, and refused where charon does not list ML_KEM_768",
    )
    mtu_bytes: int | None = Field(
        None,
        ge=576,
        le=65535,
        description="MTU of the inner interface (tunnel mode); default: the longest packet that "
        "ESP carries unfragmented over the link, with libipsec its own default of 1400, with mode "
        "iptfs the link's MTU",
    )
    implementation: Literal["auto", "kernel", "libipsec"] = Field(
        "auto",
        description="auto: the kernel's ESP where it has it, else libipsec in user space if that "
        "can do what is asked for; libipsec on a device whose limit the kernel escapes",
    )
    pfs: Literal["none", "modp2048", "ecp256", "x25519"] = Field(
        "none",
        description="group of a key exchange of ESP's own; in IKEv2 the first keys have one only "
        "with childless, later ones after a rekey",
    )
    rekey: Annotated[DurationNs, Field(ge=10 * 10**9, le=86_400 * 10**9)] | None = Field(
        None, description="time between new keys for ESP, in whole seconds; default: never"
    )
    childless: bool = Field(
        False, description="IKEv2 first, ESP in an exchange of its own (RFC 6023)"
    )

    @model_validator(mode="after")
    def _libipsec_can(self) -> "StrongswanParams":
        if self.implementation == "libipsec" and (reason := self.no_libipsec()):
            raise ValueError(f"libipsec cannot do {reason} (set implementation to kernel)")
        if self.esn and self.replay_window == 0:
            raise ValueError(
                "esn goes with a replay window: the kernel counts 32 bits where replay_window is 0"
            )
        if self.rekey is not None and self.rekey % _S_NS:
            raise ValueError("rekey has a part of a second, must be whole seconds")
        return self

    def esp_settings(self) -> Settings:
        """Return what swanctl.conf says of ESP's keys and numbers beside the defaults."""
        window: Settings = (
            {} if self.replay_window is None else {"replay_window": self.replay_window}
        )
        rekey: Settings = {} if self.rekey is None else {"rekey_time": f"{self.rekey // _S_NS}s"}
        return {**window, **rekey}

    def proposal(self) -> str:
        """Return the one proposal for ESP, in strongSwan's words."""
        parts = [SUITE_NAMES[self.suite].proposal]
        parts += [self.pfs] if self.pfs != "none" else []
        return "-".join([*parts, *(["esn"] if self.esn else [])])

    def ike_settings(self) -> Settings:
        """Return what swanctl.conf says of IKE beside the defaults."""
        settings: Settings = {} if self.ike_fragmentation else {"fragmentation": "no"}
        if self.ike_group != DEFAULT_GROUP:
            settings = {"proposals": ike_proposal(self.ike_group), **settings}
        return {**settings, **({"childless": "force"} if self.childless else {})}

    def no_libipsec(self) -> str | None:
        """Return what libipsec cannot do of this, or None."""
        if self.esn:
            return "sequence numbers of 64 bits"
        if self.replay_window is not None:
            return "a replay window of its own, it has 128 packets"
        return "ESP without UDP encapsulation" if self.udp_encapsulation is False else None
