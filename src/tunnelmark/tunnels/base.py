"""What every tunnel driver is: parameters, needs, up, problem, down."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import Encapsulation, IpName
from tunnelmark.model.params import Params
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import Negotiated, Site, TunnelUp


class TunnelParams(Params):
    """Parameters that every tunnel has.

    A driver that cannot do both IP versions inside or outside narrows the field to those it can.
    """

    count: int = Field(
        1, ge=1, le=64, description="simultaneous tunnels, the traffic spread over them"
    )
    inner: IpName = Field("ipv4", description="IP version of the traffic inside the tunnel")
    outer: IpName = Field("ipv4", description="IP version of the tunnel's own packets on the link")


class Tunnel(ABC):
    """A driver: one file, one class, found by ``kind``.

    One object serves one block. ``up`` and ``down`` are called once each, ``down`` also after an
    ``up`` that failed half-way. Daemons are started with ``Host.spawn`` and so end with the lab at
    the latest.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    params_type: ClassVar[type[TunnelParams]]
    routers: ClassVar[tuple[Router, ...]] = ("none", "routed", "nat")
    """What may stand between the two ends; narrowed by what cannot pass one."""
    is_link: ClassVar[bool] = False
    """The tunnel is on a medium of its own, made by what the study's link says: the lab then starts
    no emulator, and ``TunnelUp.medium`` stands in for it."""

    deviations: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What is set although the study does not ask for it and the program's own default is another:
    setting to reason, for docs/drivers.md."""

    params: TunnelParams
    """A driver says here which its own are: those of ``params_type``."""

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study; nothing is touched yet."""
        if not isinstance(params, self.params_type):
            raise TypeError(f"{type(params).__name__} are not the parameters of {self.kind}")
        self.params = params
        self.confined = False

    def confine(self) -> None:
        """Told before all else where a CPU limit holds programs and no kernel.

        A driver that has the choice (``implementation = "auto"``) then takes a program.
        """
        self.confined = True

    @property
    def chooses(self) -> bool:
        """Whether the study leaves it to the driver which implementation runs."""
        return getattr(self.params, "implementation", None) == "auto"

    @abstractmethod
    def need(self, host: Host) -> Need:
        """Say what each of the two hosts must have; may look at the host to choose."""

    def unavailable(self, host: Host) -> str | None:
        """Return why this tunnel cannot run on the host, with the mend, or None."""
        return self.need(host).missing(host)

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:  # noqa: ARG002
        """Return why this tunnel cannot be on a link with such an MTU, or None; touches nothing."""
        return None

    @abstractmethod
    def up(self, site: Site) -> TunnelUp:
        """Bring all ``count`` tunnels up and return when traffic can pass.

        Raises ``TunnelError`` with the program's own last words if one does not come up, or if
        what was negotiated is not what the parameters ask for.
        """

    @abstractmethod
    def problem(self) -> str | None:
        """Return what is wrong with a tunnel that was up (a dead daemon, a lost peer), or None."""

    def check_agreed(self) -> None:
        """Hold what both ends say now, of a tunnel that is up, to what the parameters ask for.

        Called beside each trial: a cipher may be negotiated anew, a connection fall back to another
        transport. Raises ``TunnelError`` as ``up`` does. Without anything negotiated that can
        change while the tunnel is up there is nothing to ask.
        """
        return

    @abstractmethod
    def down(self) -> None:
        """End everything ``up`` started; tolerates half-up and being called twice."""

    def default_mtu_bytes(self, link_mtu_bytes: int) -> int:
        """Return the MTU of the inner interface where the study sets none."""
        return link_mtu_bytes

    def encapsulation(self, agreed: Negotiated) -> Encapsulation | None:
        """Return the model of how inner packets are wrapped; None: they go as they are.

        The proof by wire is compared with it. ``agreed`` is what ``up`` returned. Raises
        ``TunnelError`` where a driver has no model.
        """
        raise RefusedError(
            f"there is no overhead model of {self.kind} ({agreed.version or 'unknown version'})"
        )
