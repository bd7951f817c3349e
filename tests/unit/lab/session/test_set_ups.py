"""The tunnel set up again by a driver of the test's own: times, counts, failures, what stays up."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session import set_ups
from tunnelmark.lab.session.set_ups import SetUps, echoes_sent
from tunnelmark.lab.session.stand import Side, Stand
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Completed
from tunnelmark.model.overhead import Encapsulation, Layer
from tunnelmark.model.rules import Limits, Probes
from tunnelmark.model.set_up import Sent
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Endpoint, Milestone, Site
from tunnelmark.tunnels.base import TunnelParams

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 2 64
Icmp: InMsgs InErrors OutEchos OutEchoReps
Icmp: 3 0 {requests} {replies}
IcmpMsg: InType0
IcmpMsg: 3
Ip6InReceives                   \t0
Icmp6OutEchos                   \t{requests6}
Icmp6OutEchoReplies             \t0
"""
SPEC = DriverSpec("made", "made", {})
FRAME_BYTES = 14 + 100
OUTER_BYTES = 84 + 60
"""Of one packet with an echo of ping in it."""


def test_echoes_are_read_from_the_kernel_s_counters() -> None:
    text = SNMP.format(requests=7, replies=2, requests6=1)
    assert echoes_sent(text) == {"requests": 8, "replies": 2}
    assert echoes_sent("") == {"requests": 0, "replies": 0}
    assert echoes_sent("Icmp: OutEchos\nIcmp: 3 4\nIcmp: x") == {"requests": 0, "replies": 0}


class Lab:
    """A link that counts what the test says it carries."""

    def __init__(self) -> None:
        self.frames = {"forward": 0, "reverse": 0}
        self.octets = {"forward": 0, "reverse": 0}
        self.echoes = 0
        self.client_host = self.server_host = self
        host: Any = self
        end = Endpoint(host, "198.18.0.1", "fd00::1", "eth0", 1500)
        self.site = Site(end, end, "tm0", lambda _n: ("", ""), lambda _n: ("", ""))

    def send(self, forward: int, reverse: int, octets: int = FRAME_BYTES) -> None:
        for way, packets in (("forward", forward), ("reverse", reverse)):
            self.frames[way] += packets
            self.octets[way] += packets * octets

    def counters(self) -> LinkCounters:
        ways = [
            {"offered": self.frames[way], "offered_bytes": self.octets[way], "in_flight": 0}
            for way in ("forward", "reverse")
        ]
        return LinkCounters(ways[0], ways[1])

    def run(self, argv: Any, **_: Any) -> Completed:
        text = SNMP.format(requests=self.echoes, replies=self.echoes, requests6=0)
        return Completed(tuple(argv), 0, text.encode(), b"")


class Tunnel:
    """A driver that does what the test says."""

    confined = False
    modelled = True
    params = TunnelParams()

    def __init__(self, do: Callable[[Any], None]) -> None:
        self.do = do
        self.downs = 0

    def up(self, site: Any) -> Any:
        self.do(site)
        return SimpleNamespace(paths=(), processes=(), negotiated=(None,))

    def down(self) -> None:
        self.downs += 1

    def encapsulation(self, _agreed: object) -> Encapsulation:
        return Encapsulation(lambda _inner: (Layer("all", 60, "here"),), 1400)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(set_ups, "_QUIET_S", 0.0)
    return Lab()


@pytest.fixture
def made(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SetUps]:
    def make(*doing: Callable[[Any], None]) -> SetUps:
        own: Any = Tunnel(lambda _site: None)
        steps = iter(doing)
        own.after = []

        def driver(_kinds: object, _spec: object) -> Tunnel:
            new = Tunnel(next(steps))
            own.after.append(new)
            return new

        monkeypatch.setattr(set_ups, "make", driver)
        side = Side(SimpleNamespace(paths=()), (), ())  # type: ignore[arg-type]
        stand = Stand(lab, own, side, side, Limits(), Probes(), None, None)  # type: ignore[arg-type]
        return SetUps(stand, SPEC)

    return make


def test_the_time_is_without_what_the_lab_does_in_between(
    lab: Lab, made: Callable[..., SetUps], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**12, 10**9))
    times: list[int] = []

    def now() -> int:
        times.append(next(clock))
        return times[-1]

    monkeypatch.setattr(time, "monotonic_ns", now)

    def up(site: Any) -> None:
        site.reached(Milestone.DIALING)  # at 0, and again at 1 s when the link was quiet
        lab.send(4, 3)
        site.reached(Milestone.AGREED)  # at 2 s; 3 s when it was counted
        lab.send(5, 5)
        site.reached(Milestone.PROBING)  # at 4 s
        site.reached(Milestone.ANSWERED)  # at 5 s

    done = made(up).again(20.0)
    assert done.took_ns == (2 - 1 + 5 - 4) * 10**9
    assert done.forward == Sent(4, 400)
    assert done.reverse == Sent(3, 300)


def test_of_a_handshake_that_a_packet_begins_the_packets_of_ping_are_taken_off(
    lab: Lab, made: Callable[..., SetUps]
) -> None:
    def up(site: Any) -> None:
        site.reached(Milestone.DIALING)
        site.reached(Milestone.PROBING)
        lab.send(2, 1)
        lab.echoes += 3
        lab.send(3, 3, OUTER_BYTES + 14)
        site.reached(Milestone.ANSWERED)

    done = made(up).again(20.0)
    assert done.took_ns is not None
    assert (done.forward, done.reverse) == (Sent(2, 200), Sent(1, 100))


def test_without_a_model_the_packets_of_ping_cannot_be_reported(
    lab: Lab, made: Callable[..., SetUps], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tunnel, "modelled", False)

    def up(site: Any) -> None:
        site.reached(Milestone.DIALING)
        lab.send(2, 1)
        site.reached(Milestone.ANSWERED)

    done = made(up).again(20.0)
    assert done.took_ns is not None
    assert (done.forward, done.reverse) == (None, None)


def _fails(site: Any) -> None:
    site.reached(Milestone.DIALING)
    raise TunnelError("no answer")


def _works(site: Any) -> None:
    for milestone in Milestone:
        site.reached(milestone)


def test_a_set_up_that_fails_is_a_figure_and_the_tunnel_is_restored(
    lab: Lab, made: Callable[..., SetUps]
) -> None:
    def sends(site: Any) -> None:
        site.reached(Milestone.DIALING)
        lab.send(6, 0)
        raise TunnelError("no answer")

    ups = made(sends, _fails, _works)
    failed = ups.again(20.0)
    assert (failed.took_ns, failed.forward, failed.reason) == (None, Sent(6, 600), "no answer")
    own: Any = ups.stand.tunnel
    assert ups.lost is not None
    ups.restore()
    assert ups.lost is None
    assert ups.stand.tunnel is own.after[-1]
    assert own.after[0].downs >= 1
    assert ups.stand.tunnel.downs == 0
    ups.down()
    assert ups.stand.tunnel.downs == 1


def test_a_tunnel_that_does_not_come_up_again_is_reported(made: Callable[..., SetUps]) -> None:
    ups = made(*[_fails] * 4)
    ups.again(20.0)
    ups.restore()
    assert ups.lost == "no answer"


def test_one_that_is_late_has_failed(
    made: Callable[..., SetUps],
) -> None:
    def slow(site: Any) -> None:
        site.reached(Milestone.DIALING)
        assert site.patience(30.0) <= 0.2
        assert site.patience(0.05) == pytest.approx(0.05)
        time.sleep(0.25)
        assert site.patience(30.0) == pytest.approx(0.1)
        site.reached(Milestone.ANSWERED)

    done = made(slow).again(0.2)
    assert done.took_ns is None
    assert done.reason.endswith("s, the limit is 0.2 s")


def test_what_fails_before_the_client_begins_is_no_handshake(made: Callable[..., SetUps]) -> None:
    def no_server(_site: Any) -> None:
        raise TunnelError("the server did not bind its port")

    with pytest.raises(TunnelError, match="did not bind"):
        made(no_server).again(20.0)


def test_a_tunnel_that_is_another_than_asked_for_is_no_failed_handshake(
    made: Callable[..., SetUps],
) -> None:
    def other(site: Any) -> None:
        site.reached(Milestone.DIALING)
        raise RefusedError("runs with another cipher")

    with pytest.raises(RefusedError):
        made(other).again(20.0)
