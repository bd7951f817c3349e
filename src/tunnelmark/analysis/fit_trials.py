"""What the trials of a result say of a tunnel's work on packets: the input of a fit. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from tunnelmark.engine.records import MISSING_NS, read_send
from tunnelmark.model.errors import ResultError
from tunnelmark.model.overhead import IP_HEADER_BYTES, UDP_HEADER_BYTES, IpVersion, fragment

WAYS: Final = ("forward", "reverse")
WORKLOADS: Final = frozenset({"udp_echo", "udp_load"})
"""Kinds whose packets have one size and are counted at both ends."""
_SENDER_PLACES: Final = ("sender_socket", "sender_queue")
# One standard deviation of a normal distribution on both sides of the median.
_LOWER_PERCENT: Final = 15.865525393145708
_UPPER_PERCENT: Final = 100 - _LOWER_PERCENT

BringUp = tuple[str, int]
"""Block and bring-up."""


@dataclass(frozen=True)
class WayTrial:
    """One way of one trial. Delays in ns above the baseline beside it; None: not known."""

    sent: int
    """Datagrams."""
    arrived: int
    sent_packet_s: float | None
    received_packet_s: float | None
    lost_sender: float | None
    """Share of the datagrams sent that never left the sender, by the counters of the kernel."""
    lost_receiver: float | None
    base_loss: float | None
    """Share that the baseline lost at the same load."""
    delay_ns: float | None
    """Median one-way delay, without what the tunnel's own bytes take on the link."""

    @property
    def loss(self) -> float:
        """Share of the datagrams sent that did not arrive."""
        return 1 - self.arrived / self.sent if self.sent else 0.0


@dataclass(frozen=True)
class FitTrial:
    """One valid trial of a tunnel."""

    bring_up: BringUp
    packets: int
    """Packets inside the tunnel for each datagram."""
    octets: int
    """Bytes of these packets together."""
    whole: bool
    """Whether each datagram is one packet on the link, with the tunnel and without."""
    ways: Mapping[str, WayTrial]
    """``forward`` and ``reverse``, as far as something was sent."""
    echo: bool
    cpu_s: Mapping[str, float]
    """CPU seconds of the tunnel's processes, of ``client`` and ``server``."""
    measuring_s: float
    thread_max_ratio: float | None
    rtt_ns: float | None
    """Median RTT above the baseline, without what the tunnel's own bytes take on the link."""
    rtt_variance_ns2: float | None
    """Of the RTT of single packets, above the baseline."""


def fit_trials(
    rows: pl.DataFrame,
    *,
    mtu_bytes: int,
    inner_ip: IpVersion,
    ns_per_byte: tuple[float, float] | None,
    samples: Callable[[str], bytes] | None = None,
) -> tuple[FitTrial, ...]:
    """Return the trials that a fit can use, of one tunnel and the baseline beside it.

    ``rows`` are valid rows of ``store.Result.trials()`` on one link, with path ``total``.
    ``ns_per_byte`` is what a byte takes on the link there and back; None: unknown, as on a WLAN.
    ``samples`` reads a bulk record file; without it nothing is known of single packets.
    """
    base: dict[tuple[Any, ...], dict[str, Any]] = {}
    tunnel: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        key = (row["pair_id"], row["block_id"], row["bring_up"], row["repeat"])
        (base if row["is_baseline"] else tunnel).setdefault(key, row)
    place = _Place(mtu_bytes, inner_ip, ns_per_byte, samples)
    found = (place.trial(row, base.get(key)) for key, row in tunnel.items())
    return tuple(one for one in found if one is not None)


@dataclass(frozen=True)
class _Place:
    mtu_bytes: int
    inner_ip: IpVersion
    ns_per_byte: tuple[float, float] | None
    samples: Callable[[str], bytes] | None

    def trial(self, row: dict[str, Any], base: dict[str, Any] | None) -> FitTrial | None:
        payload = row.get("param_payload_bytes")
        if payload is None and (frame := row.get("param_frame_bytes")) is not None:
            payload = frame - 18 - IP_HEADER_BYTES[4] - UDP_HEADER_BYTES
        document = _details(row)
        measuring_s = document.get("measuring_s")
        ratios = {end: row.get(f"cpu_tunnel_{end}_ratio") for end in ("client", "server")}
        known = {end: ratio for end, ratio in ratios.items() if ratio is not None}
        if (
            row["workload_kind"] not in WORKLOADS
            or not isinstance(payload, int)
            or not isinstance(measuring_s, int | float)
            or known != ratios
            or measuring_s <= 0
        ):
            return None
        inner = fragment(
            payload + IP_HEADER_BYTES[self.inner_ip] + UDP_HEADER_BYTES,
            self.mtu_bytes,
            self.inner_ip,
        )
        whole = all(one is None or one.get("outer_packets") == 1 for one in (row, base))
        extra = self._extra_ns(row, base) if whole else None
        counts, echo = _counts(document)
        ways = {
            way: _way(way, count, row, base, None if extra is None else extra[at])
            for at, way in enumerate(WAYS)
            if (count := counts.get(way)) is not None and count[0] > 0
        }
        if not ways:
            return None
        return FitTrial(
            bring_up=(row["block_id"], row["bring_up"]),
            packets=len(inner),
            octets=sum(inner),
            whole=whole,
            ways=ways,
            echo=echo,
            cpu_s={end: ratio * measuring_s for end, ratio in known.items()},
            measuring_s=measuring_s,
            thread_max_ratio=row.get("cpu_tunnel_thread_max_ratio"),
            rtt_ns=_above("rtt_p50_ns", row, base, None if extra is None else sum(extra)),
            rtt_variance_ns2=self._variance(row, base) if echo and whole else None,
        )

    def _extra_ns(
        self, row: dict[str, Any], base: dict[str, Any] | None
    ) -> tuple[float, float] | None:
        """Return what the bytes that the tunnel adds take on the link, each way."""
        own = row.get("overhead_bytes")
        bare = None if base is None else base.get("overhead_bytes")
        if own is None or bare is None or self.ns_per_byte is None:
            return None
        there, back = self.ns_per_byte
        return (own - bare) * there, (own - bare) * back

    def _variance(self, row: dict[str, Any], base: dict[str, Any] | None) -> float | None:
        own, bare = self._own_variance(row), None if base is None else self._own_variance(base)
        return None if own is None or bare is None else own - bare

    def _own_variance(self, row: dict[str, Any]) -> float | None:
        """Return the variance of the RTT by its quantiles: a few held-up packets do not count."""
        names = [name for name in row["samples"] if name.endswith(".send.rec")]
        if self.samples is None or len(names) != 1:
            return None
        try:
            table = read_send(self.samples(names[0]), names[0])
        except ResultError:
            return None  # removed by hand to save space
        back = (table["returned_ns"] != MISSING_NS) & (table["sent_ns"] != MISSING_NS)
        if not back.any():
            return None
        rtt = (table["returned_ns"][back] - table["sent_ns"][back]).astype(np.float64)
        low, high = np.percentile(rtt, [_LOWER_PERCENT, _UPPER_PERCENT])
        return float(((high - low) / 2) ** 2)


def _way(
    way: str,
    count: tuple[int, int],
    row: dict[str, Any],
    base: dict[str, Any] | None,
    extra_ns: float | None,
) -> WayTrial:
    return WayTrial(
        sent=count[0],
        arrived=count[1],
        sent_packet_s=row.get("sent_packet_s"),
        received_packet_s=row.get(f"received_{way}_packet_s"),
        lost_sender=_lost(row, way, _SENDER_PLACES),
        lost_receiver=_lost(row, way, ("receiver",)),
        base_loss=None if base is None else base.get(f"loss_{way}_ratio"),
        delay_ns=_above(f"owd_{way}_p50_ns", row, base, extra_ns),
    )


def _lost(row: dict[str, Any], way: str, places: tuple[str, ...]) -> float | None:
    figures = [row.get(f"lost_{way}_{place}_ratio") for place in places]
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def _above(
    metric: str, row: dict[str, Any], base: dict[str, Any] | None, extra_ns: float | None
) -> float | None:
    own = row.get(metric)
    bare = None if base is None else base.get(metric)
    if own is None or bare is None or extra_ns is None:
        return None
    return float(own - bare - extra_ns)


def _details(row: dict[str, Any]) -> dict[str, Any]:
    try:
        document = json.loads(row["details"] or "{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _counts(document: dict[str, Any]) -> tuple[dict[str, tuple[int, int]], bool]:
    """Return the datagrams sent and arrived by way, and whether there were replies."""
    found: dict[str, tuple[int, int]] = {}
    echo = False
    for way, other, part in (
        ("forward", "reverse", document if "send" in document else document.get("forward")),
        ("reverse", "forward", document.get("reverse")),
    ):
        if not isinstance(part, dict):
            continue
        sent, arrived = _sum(part, "send", "sent"), _sum(part, "reflect", "received")
        answered, returned = _sum(part, "reflect", "answered"), _sum(part, "send", "returned")
        if sent is None or arrived is None:
            continue
        found[way] = (sent, arrived)
        if answered:
            echo = True
            found[other] = (answered, returned or 0)
    return found, echo


def _sum(part: dict[str, Any], end: str, name: str) -> int | None:
    summary = part.get(end)
    flows = summary.get("flows") if isinstance(summary, dict) else None
    if not isinstance(flows, list) or not flows:
        return None
    counts = [flow.get(name) if isinstance(flow, dict) else None for flow in flows]
    known = [count for count in counts if type(count) is int and count >= 0]
    return sum(known) if len(known) == len(counts) else None
