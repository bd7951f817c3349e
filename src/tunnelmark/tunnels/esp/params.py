"""What a study can set of every tunnel that is ESP."""

from pydantic import Field

from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.esp.groups import DEFAULT_GROUP, IkeGroup
from tunnelmark.tunnels.esp.suites import Suite


class EspParams(TunnelParams):
    """What a study can set of every tunnel that is ESP."""

    suite: Suite = Field("AES-256-GCM", description="encryption and integrity of ESP")
    udp_encapsulation: bool | None = Field(
        None, description="ESP inside UDP port 4500 as through a NAT; default: off"
    )
    esn: bool = Field(False, description="sequence numbers of 64 bits, of which 32 are sent")
    ike_group: IkeGroup = Field(DEFAULT_GROUP, description="group of IKE's own key exchange")
    ike_fragmentation: bool = Field(
        True, description="whether IKE fragments long messages itself (RFC 7383)"
    )
    mtu_bytes: int | None = Field(
        None,
        ge=576,
        le=65535,
        description="MTU of the inner interface (tunnel mode); default: the longest packet that "
        "ESP carries unfragmented over the link",
    )

    def columns(self) -> dict[str, object]:
        """Return all values, the group of IKE only where a study gives another than ever."""
        columns = super().columns()
        if self.ike_group == DEFAULT_GROUP:
            del columns["ike_group"]
        return columns
