"""What datagrams become on their way: packets by one model, work by another. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tunnelmark.engine.link import AnyLinkSpec, SharedLinkSpec
from tunnelmark.model.block import ProofVerdict, WireProof, WireSample
from tunnelmark.model.congestion import MODELLED
from tunnelmark.model.costs import BASIS, EndCosts, WorkCosts
from tunnelmark.model.overhead import (
    IP_HEADER_BYTES,
    IP_VERSIONS,
    Carried,
    Encapsulation,
    IpVersion,
    Wire,
    datagram,
    fragmentation_point,
    segment_headers_bytes,
)
from tunnelmark.model.trial import BASELINE
from tunnelmark.model.tunnel import CARRIER_CONGESTION, Negotiated, TrafficPath
from tunnelmark.sim.work import FREE, Work
from tunnelmark.tunnels.base import Tunnel

PASS_COPIES: Final = frozenset({BASELINE, "gre", "vxlan"})
"""Kinds that hand on a packet as often as it comes: without a sequence number nobody can tell."""
MOST_WAITING: Final = 500
"""Packets that wait for an end whose bound nobody knows: the queue of a TUN device in Linux
(drivers/net/tun.c, TUN_READQ_SIZE)."""
WINDOW_BYTES: Final = 3 << 20
"""Limit of a TCP window where none is given: half of the 6 MiB to which Linux grows a receive
buffer (Documentation/networking/ip-sysctl, ``tcp_rmem`` and ``tcp_adv_win_scale``)."""
_FREE: Final = {"packet_ns": 0, "byte_ps": 0, "scatter": 0.0, "most_waiting": MOST_WAITING}


@dataclass(frozen=True)
class Carriage:
    """A tunnel, or none, over a link."""

    paths: tuple[TrafficPath, ...]
    agreed: Negotiated
    encapsulation: Encapsulation | None
    inner_ip: IpVersion
    link_mtu_bytes: int
    link: AnyLinkSpec
    """With what a tunnel that is the link itself makes of it."""
    work: Work
    drops_copies: bool
    mss_clamp_bytes: int | None = None
    """To which the tunnel lowers the MSS of TCP connections; None: it does not."""

    @property
    def stream(self) -> bool:
        """Whether TCP carries the tunnel."""
        return self._segment_headers is not None

    def wire(self, payload_bytes: int) -> Wire:
        """Return what a datagram becomes, on air its frames."""
        return self._wire(payload_bytes, self.encapsulation)

    def on_link(self, payload_bytes: int) -> Wire:
        """Return what a datagram is when the link takes it: the air adds its own to each frame."""
        wrap = self.encapsulation
        return self._wire(payload_bytes, None if wrap is not None and wrap.below_ip else wrap)

    def link_json(self, files_dir: str) -> dict[str, object]:
        """Return the link as ``tunnelmark-engine sim`` reads it; its files are in a folder."""
        link = self.link
        if isinstance(link, SharedLinkSpec):
            return {"medium": dict(link.medium)}
        return {
            "a_to_b": link.a_to_b.to_json(files_dir),
            "b_to_a": link.b_to_a.to_json(files_dir),
        }

    def path_json(self, payloads: Iterable[int]) -> dict[str, object]:
        """Return a path for such payloads as ``tunnelmark-engine sim`` reads it."""
        return {
            "sizes": [
                {"payload_bytes": payload, "packets": self._packets_json(payload)}
                for payload in sorted(set(payloads))
            ],
            "tunnel": self._tunnel_json(),
        }

    def cores_json(self) -> dict[str, object]:
        """Return the CPUs that all tunnels share, as ``tunnelmark-engine sim`` reads them."""
        return {"cores": dict(self.work.cores)} if self.work.cores else {}

    def proofs(self, payloads: Sequence[int]) -> tuple[WireProof, ...]:
        """Return what stands in the place of the proofs by wire: the packets of the model."""
        point = fragmentation_point(
            link_mtu_bytes=self.link_mtu_bytes,
            encapsulation=self.encapsulation,
            inner_ip=self.inner_ip,
        )
        samples = tuple(
            WireSample(payload, self.wire(payload).outer_packet_bytes)
            for payload in sorted(set(payloads))
        )
        return tuple(
            WireProof(
                path=path.name,
                verdict=ProofVerdict.MODELLED,
                message="the packets are those of the overhead model, nothing was captured",
                packets=0,
                foreign_packets=0,
                marker_seen=False,
                encrypted_expected=False,
                samples=samples,
                fragmentation_point_bytes=point,
            )
            for path in self.paths
        )

    def _wire(self, payload_bytes: int, wrap: Encapsulation | None) -> Wire:
        return datagram(
            payload_bytes,
            link_mtu_bytes=self.link_mtu_bytes,
            encapsulation=wrap,
            inner_ip=self.inner_ip,
        )

    def _tunnel_json(self) -> dict[str, object] | None:
        work = self.work
        if not work.takes_time and self.encapsulation is None:
            return None
        return {
            "client": _end_json(work.client),
            "server": _end_json(work.server),
            "drops_copies": self.drops_copies,
            **self._stream_json(),
        }

    def _packets_json(self, payload_bytes: int) -> list[dict[str, object]]:
        """Return the packets of a datagram, worked out once: trials ask for the same thousands."""
        if (known := self._packets.get(payload_bytes)) is None:
            known = self._packets[payload_bytes] = [
                {"bytes": one.inner_packet_bytes, "on_link": self._pieces(one)}
                for one in self.on_link(payload_bytes).packets
            ]
        return known

    @cached_property
    def _packets(self) -> dict[int, list[dict[str, object]]]:
        return {}

    def _pieces(self, one: Carried) -> list[int]:
        """Return what the simulator puts on the link for a packet: its packets, or its message."""
        if (headers := self._segment_headers) is None:
            return list(one.outer_packet_bytes)
        return [sum(one.outer_packet_bytes) - headers * len(one.outer_packet_bytes)]

    def _stream_json(self) -> dict[str, object]:
        """Return the connection that carries the tunnel; nothing where packets do."""
        if (headers := self._segment_headers) is None or self.encapsulation is None:
            return {}
        segment_bytes = self.link_mtu_bytes - headers
        tcp = {
            "ip_header_bytes": IP_HEADER_BYTES[self.encapsulation.outer_ip],
            "segment_bytes": segment_bytes,
            "window_bytes": max(WINDOW_BYTES, segment_bytes),
            "congestion": self.agreed.details[CARRIER_CONGESTION],
        }
        return {"tcp": tcp}

    @property
    def _segment_headers(self) -> int | None:
        """Bytes of IP and TCP in each segment of a tunnel over TCP; None: it is over packets."""
        wrap = self.encapsulation
        if wrap is None or not wrap.stream:
            return None
        # They do not depend on what is inside.
        return segment_headers_bytes(wrap.layers(0))


def carriage(tunnel: Tunnel, link: AnyLinkSpec, link_mtu_bytes: int, work: Work = FREE) -> Carriage:
    """Return how a tunnel carries datagrams over a link, by its parameters and what it spends.

    Raises ``RefusedError`` where there is no model of its packets.
    """
    agreed = tunnel.by_model(
        link_mtu_bytes, "" if work.model is None else work.model.tunnel.implementation
    )
    if isinstance(link, SharedLinkSpec):
        qos = "no" if link.medium["qos"] is None else "yes"
        agreed = replace(agreed, details={**agreed.details, "qos": qos})
        link = SharedLinkSpec(tunnel.on_air(link.medium), link.seed)
    if work.basis is not None:
        agreed = replace(agreed, details={**agreed.details, BASIS: work.basis.value})
    encapsulation = tunnel.encapsulation(agreed)
    if encapsulation is not None and encapsulation.stream:
        name = tunnel.params.congestion or MODELLED[0]
        details = {**agreed.details, CARRIER_CONGESTION: name}
        agreed = replace(agreed, details=details)
    return Carriage(
        paths=tuple(
            _path(number, agreed.mtu_bytes, IP_VERSIONS[tunnel.params.inner])
            for number in range(tunnel.params.count)
        ),
        agreed=replace(agreed, version=_version(tunnel.kind, work)),
        encapsulation=encapsulation,
        inner_ip=IP_VERSIONS[tunnel.params.inner],
        link_mtu_bytes=link_mtu_bytes,
        link=link,
        work=work,
        drops_copies=tunnel.kind not in PASS_COPIES,
        mss_clamp_bytes=tunnel.params.mss_clamp,
    )


def payloads_of(flow: Mapping[str, object]) -> Sequence[int]:
    """Return all payloads that a flow of a sender's configuration may have, in bytes.

    Raises ``ValueError`` for sizes that come from a file.
    """
    size = flow["size"]
    if not isinstance(size, Mapping):
        raise TypeError("size is not an object")
    match size["type"]:
        case "fixed":
            return (int(size["payload_bytes"]),)
        case "uniform":
            return range(int(size["min_bytes"]), int(size["max_bytes"]) + 1)
        case "mix":
            return tuple(int(one["payload_bytes"]) for one in size["shares"])
        case other:
            raise ValueError(f"datagrams with sizes by {other} are not simulated")


def _version(kind: str, work: Work) -> str:
    """Return what stands in a report where a program has its version."""
    if work.takes_time:
        return f"a model with the costs of {work.source}"
    return "" if kind == BASELINE else "a model without costs"


def _path(number: int, mtu_bytes: int, version: IpVersion) -> TrafficPath:
    """Return the path of the ``number``-th of several tunnels; nothing ever has its addresses."""
    if version == 4:  # noqa: PLR2004 - the IP version
        third, fourth = divmod(4 * number, 256)
        ends = [f"198.19.{third}.{fourth + host}" for host in (1, 2)]
    else:
        ends = [f"fd00:0:0:{number:x}::{host}" for host in (1, 2)]
    return TrafficPath(
        name=str(number),
        client_address=ends[0],
        server_address=ends[1],
        client_interface="",
        server_interface="",
        mtu_bytes=mtu_bytes,
    )


def _end_json(costs: EndCosts | None) -> dict[str, object]:
    if costs is None:
        return {"servers": 1, "in_order": True, "wrap": _FREE, "unwrap": _FREE}
    return {
        "servers": costs.servers,
        "in_order": costs.in_order,
        "wrap": _work_json(costs.wrap),
        "unwrap": _work_json(costs.unwrap),
    }


def _work_json(work: WorkCosts) -> dict[str, object]:
    waiting = work.most_waiting
    return {
        "packet_ns": round(work.packet_ns.estimate),
        "byte_ps": round(work.byte_ps.estimate),
        "scatter": 0.0 if work.scatter is None else work.scatter.estimate,
        "most_waiting": MOST_WAITING if waiting is None else round(waiting.estimate),
    }
