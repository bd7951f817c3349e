"""The tunnel of a lab taken down and brought up again, timed and counted each time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.quiet import wait_until_quiet
from tunnelmark.lab.session.stand import Stand
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host
from tunnelmark.model.overhead import IP_VERSIONS, IpVersion
from tunnelmark.model.registry import make
from tunnelmark.model.set_up import Sent, SetUp
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.model.tunnel import Milestone, Site, TunnelUp
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.tunnels.support import first_through

_QUIET_S: Final = 0.1
"""A link that carried nothing for so long has the last of a handshake behind it: TCP delays an
acknowledgement by 40 ms."""
FIRST_ANSWER_S: Final = 15.0
_MORE_TRIES: Final = 3
_LEAST_WAIT_S: Final = 0.1
# ping(8): 56 bytes of data behind an ICMP header.
_ECHO_BYTES: Final[Mapping[IpVersion, int]] = {4: 20 + 8 + 56, 6: 40 + 8 + 56}
_COUNTED: Final = ("/proc/net/snmp", "/proc/net/snmp6")
_ECHO_LIMIT_BYTES: Final = 1 << 20


class SetUps:
    """Set-ups of one trial's tunnel; of the baseline, which has none, its first answer."""

    def __init__(self, stand: Stand, spec: DriverSpec) -> None:
        """Take what stands, whose tunnel ``spec`` describes, or the baseline beside it."""
        self.stand = stand
        """With the tunnel that was brought up last."""
        self.lost: str | None = None
        """Why the tunnel is not up, if it is not."""
        self._spec = spec
        self._made: list[Tunnel] = []

    def again(self, limit_s: float) -> SetUp:
        """Take the tunnel down and set it up again, with new keys and programs.

        A set-up that fails is a figure. Raises ``RefusedError`` where the tunnel is not what was
        asked for, ``TunnelError`` and ``LabError`` where it failed before the client began.
        """
        if self._spec.kind == BASELINE:
            return self._answer(limit_s)
        watch = _Watch(limit_s, lab=self.stand.lab)
        try:
            up, tunnel = self._renewed(watch)
        except RefusedError:
            raise
        except TunnelError as error:
            if Milestone.DIALING not in watch.at_ns:
                raise
            # What it sent until then is evidence, too.
            watch.count()
            self._take_down()
            forward, reverse = watch.sent()
            return SetUp(None, forward, reverse, str(error))
        if Milestone.AGREED not in watch.at_ns:
            watch.count()
        forward, reverse = watch.sent()
        if Milestone.AGREED not in watch.at_ns:
            # The first packet began the handshake: the packets of ping are subtracted.
            forward, reverse = watch.without_echoes(tunnel, up, forward, reverse)
        return watch.set_up(forward, reverse)

    def restore(self) -> None:
        """See that the tunnel is up for what follows; else ``lost`` says why not."""
        for _ in range(_MORE_TRIES):
            if self.lost is None:
                return
            try:
                self._renewed(None)
            except TunnelError as error:
                self.lost = str(error)
                self._take_down()

    def down(self) -> None:
        """Take down what was brought up; tolerates being called twice."""
        while self._made:
            self._made.pop().down()

    def _renewed(self, watch: "_Watch | None") -> tuple[TunnelUp, Tunnel]:
        stand = self.stand
        confined = stand.tunnel.confined
        self.lost = "it is being set up"
        self._take_down()
        tunnel = make(tunnel_kinds(), self._spec)
        if confined:
            tunnel.confine()
        self._made.append(tunnel)
        up = tunnel.up(stand.lab.site if watch is None else self._site(watch))
        self.stand = replace(stand, tunnel=tunnel, own=replace(stand.own, up=up))
        self.lost = None
        return up, tunnel

    def _take_down(self) -> None:
        self.stand.tunnel.down()
        self.down()

    def _site(self, timed: "Timed") -> Site:
        """Return the lab's site, whose driver reports to what times it."""
        return replace(self.stand.lab.site, reached=timed.reached, patience=timed.patience)

    def _answer(self, limit_s: float) -> SetUp:
        """Return the time of the first answer beside the tunnel; nothing is sent before it."""
        watch = _Watch(limit_s, lab=self.stand.lab)
        watch.reached(Milestone.DIALING)
        words = first_through(
            self._site(watch), self.stand.base.up.paths[0], limit_s=FIRST_ANSWER_S
        )
        nothing = Sent(0, 0)
        if words is not None:
            return SetUp(None, nothing, nothing, words)
        return SetUp(watch.took_ns, nothing, nothing)


@dataclass
class Timed:
    """One set-up as the driver tells it."""

    limit_s: float
    at_ns: dict[Milestone, int] = field(default_factory=dict)
    _paused_ns: int = 0
    """So long the lab kept the driver waiting, which the set-up does not take."""

    def reached(self, milestone: Milestone) -> None:
        """Note the time."""
        self.at_ns[milestone] = time.monotonic_ns()

    def patience(self, usual_s: float) -> float:
        """Return what is left of the limit, where that is less than usual."""
        if Milestone.DIALING not in self.at_ns:
            return usual_s
        gone_ns = time.monotonic_ns() - self.at_ns[Milestone.DIALING] - self._paused_ns
        return min(usual_s, max(_LEAST_WAIT_S, self.limit_s - gone_ns / 1e9))

    @property
    def took_ns(self) -> int:
        """How long it took, without what the lab did between agreement and first packet."""
        at = self.at_ns
        if Milestone.AGREED not in at:
            return at[Milestone.ANSWERED] - at[Milestone.DIALING]
        agreed = at[Milestone.AGREED] - at[Milestone.DIALING]
        return agreed + at[Milestone.ANSWERED] - at[Milestone.PROBING]

    def set_up(self, forward: Sent | None, reverse: Sent | None) -> SetUp:
        """Return one that came up, and so failed only if it took longer than its limit."""
        if self.took_ns <= self.limit_s * 1e9:
            return SetUp(self.took_ns, forward, reverse)
        reason = f"it took {self.took_ns / 1e9:.1f} s, the limit is {self.limit_s:g} s"
        return SetUp(None, forward, reverse, reason)


@dataclass
class _Watch(Timed):
    """One set-up with the link's counters before and behind."""

    lab: Lab = field(kw_only=True)
    _before: LinkCounters | None = None
    _after: LinkCounters | None = None
    _echoes: tuple[int, int] | None = None
    """Echo requests of the client and replies of the server before it began."""

    def reached(self, milestone: Milestone) -> None:
        """Note the time; at the two ends of a handshake wait for a quiet link and count."""
        now_ns = time.monotonic_ns()
        if milestone is Milestone.DIALING:
            wait_until_quiet(self.lab, look_s=_QUIET_S)
            self._before = self.lab.counters()
            self._echoes = self._counted_echoes()
            now_ns = time.monotonic_ns()
        self.at_ns[milestone] = now_ns
        if milestone is Milestone.AGREED:
            self.count()
            self._paused_ns = time.monotonic_ns() - now_ns

    def count(self) -> None:
        """Read the link's counters once nothing of the handshake is under way."""
        wait_until_quiet(self.lab, look_s=_QUIET_S)
        self._after = self.lab.counters()

    def sent(self) -> tuple[Sent | None, Sent | None]:
        """Return what (client, server) sent between the two counts."""
        before, after = self._before, self._after
        if before is None or after is None:
            return None, None
        forward, reverse = (
            _grown(getattr(before, way), getattr(after, way), before.header_bytes)
            for way in ("forward", "reverse")
        )
        return forward, reverse

    def without_echoes(
        self, tunnel: Tunnel, up: TunnelUp, forward: Sent | None, reverse: Sent | None
    ) -> tuple[Sent | None, Sent | None]:
        """Take the packets that carried ping's requests and replies from what was sent.

        Unknown where the tunnel has no model of its packets.
        """
        before, after = self._echoes, self._counted_echoes()
        if forward is None or reverse is None or before is None or after is None:
            return None, None
        if not tunnel.modelled or (model := tunnel.encapsulation(up.negotiated[0])) is None:
            return None, None
        inner = _ECHO_BYTES[IP_VERSIONS[tunnel.params.inner]]
        outer = inner + sum(layer.bytes for layer in model.layers(inner))
        return (
            _less(forward, after[0] - before[0], outer),
            _less(reverse, after[1] - before[1], outer),
        )

    def _counted_echoes(self) -> tuple[int, int] | None:
        client = _icmp(self.lab.client_host)
        server = _icmp(self.lab.server_host)
        return client["requests"], server["replies"]


def _grown(then: Mapping[str, int], now: Mapping[str, int], header_bytes: int) -> Sent:
    frames = int(now["offered"]) - int(then["offered"])
    octets = int(now["offered_bytes"]) - int(then["offered_bytes"])
    return Sent(frames, octets - header_bytes * frames)


def _less(sent: Sent, packets: int, each_bytes: int) -> Sent:
    return Sent(sent.packets - packets, sent.octets - packets * each_bytes)


def _icmp(host: Host) -> dict[str, int]:
    """Return the echo requests and replies that a host has sent, over both IP versions."""
    done = host.run(["cat", *_COUNTED], check=False)
    return echoes_sent(done.stdout[:_ECHO_LIMIT_BYTES].decode("ascii", "replace"))


def echoes_sent(text: str) -> dict[str, int]:
    """Return ``requests`` and ``replies`` sent, by /proc/net/snmp and snmp6. Pure.

    RFC 2011 and RFC 4293 name the counters; one that is not there counts nothing.
    """
    counted: dict[str, int] = {}
    names: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Icmp:"]:
            if names and len(names) == len(words):
                counted |= {
                    name: int(value)
                    for name, value in zip(names[1:], words[1:], strict=True)
                    if value.isdigit()
                }
            names = words
        elif len(words) == len(("name", "value")) and words[1].isdigit():
            counted[words[0]] = int(words[1])
    return {
        "requests": counted.get("OutEchos", 0) + counted.get("Icmp6OutEchos", 0),
        "replies": counted.get("OutEchoReps", 0) + counted.get("Icmp6OutEchoReplies", 0),
    }
