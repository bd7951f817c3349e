"""What a warm-up sends: enough for each path, and never more than a slow gateway answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.session import warm
from tunnelmark.lab.session.warm import stream, warm_up
from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import TunnelError

_S_NS = 10**9
_WAIT_NS = 2 * 10**8


@pytest.mark.parametrize("paths", [1, 2, 3, 10, 50, 200])
def test_clients_share_a_rate_that_a_slow_gateway_answers(paths: int) -> None:
    sent = stream(paths, _WAIT_NS)
    assert sent.load == "each"
    assert paths * _S_NS / sent.gap <= 500
    assert sent.packet_count >= 10
    assert (sent.late, sent.drain) == (_WAIT_NS, _WAIT_NS)


def test_one_path_has_a_fifth_of_a_second() -> None:
    sent = stream(1, _WAIT_NS)
    assert (sent.gap, sent.packet_count) == (5_000_000, 40)


@pytest.mark.parametrize("silent_streams", [0, 1, 2])
def test_a_path_that_is_silent_is_asked_once_more_and_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch, silent_streams: int
) -> None:
    waits: list[int] = []

    class Echo:
        def __init__(self, params: Any) -> None:
            waits.append(params.late)

        def run(self, _context: object) -> Any:
            rtt = None if len(waits) <= silent_streams else 1
            of = [("0", 1), ("1", rtt)]
            measured = [SimpleNamespace(path=p, metrics={"rtt_p50_ns": ns}) for p, ns in of]
            return SimpleNamespace(measurements=measured, checks=())

    monkeypatch.setattr(warm, "UdpEcho", Echo)
    monkeypatch.setattr(warm, "fixed_round_trip", lambda *_: SimpleNamespace(total_ns=4_000_000))
    place = SimpleNamespace(engine="", owner_pid=1, stratum=Stratum.NAMESPACES)
    host, end = SimpleNamespace(), SimpleNamespace(mtu_bytes=1500)
    lab: Any = SimpleNamespace(
        client_host=host, server_host=host, place=place, link=None, client=end, spin=True
    )
    up: Any = SimpleNamespace(paths=(1, 2))
    if silent_streams == 2:
        with pytest.raises(TunnelError, match="path 1: no packet of the warm-up came back"):
            warm_up(up, lab, seed=1)
    else:
        warm_up(up, lab, seed=1)
    assert waits == [204_000_000, _S_NS][: silent_streams + 1]
