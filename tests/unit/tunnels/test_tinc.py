"""What tinc says of itself, and where it is read wrongly if at all."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels import tinc
from tunnelmark.tunnels.daemon import Daemon, last_complaint
from tunnelmark.tunnels.tinc import TincParams, TincTunnel, read_nodes

LIST = """\
Statistics for Linux tun/tap device (tun mode) /dev/net/tun:
 total bytes in:          98
Nodes:
 client at MYSELF cipher 0 digest 0 maclength 0 compression 0 options 0 status 0018 nexthop client
 server at 198.18.0.2 port 655 cipher {cipher} digest 672 maclength 4 compression 0 \
options 0 status 001a nexthop server via server pmtu 1518 (min 0 max 1518)
End of nodes.
"""


def test_the_last_list_counts_and_the_node_itself_does_not() -> None:
    log = "Ready\n" + LIST.format(cipher=91) + "Edges:\n" + LIST.format(cipher=427)
    assert read_nodes(log) == {
        "server": {"cipher": 427, "digest": 672, "MAC length": 4, "compression": 0}
    }


def test_a_list_that_is_not_there_or_not_finished_is_none() -> None:
    assert read_nodes("") is None
    assert read_nodes("Nodes:\n server at 198.18.0.2 port 655 cipher 427 digest 672") is None
    assert read_nodes("Nodes:\nEnd of nodes.\n") == {}
    begun = LIST.format(cipher=427) + LIST.format(cipher=91).partition("End")[0]
    assert read_nodes(begun) is None


def test_a_node_with_numbers_beyond_belief_is_no_node() -> None:
    assert read_nodes(LIST.format(cipher="9" * 400)) == {}


Answers = Callable[..., TincTunnel]


@pytest.fixture
def answering(hosts: Any, site: Site, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """A tunnel that is up, whose daemons write the next text of the test when they are asked."""
    monkeypatch.setattr(tinc, "_SHOWN_LIMIT_S", 0.0)

    def make(*texts: str) -> TincTunnel:
        tunnel = TincTunnel(TincParams.model_validate({}))
        daemons = []
        for host, end in zip(hosts, (site.client, site.server), strict=True):
            process: Any = host.spawn(["tincd"], name=f"tinc-{host.name}")
            peer = "server" if host.name == "client" else "client"
            left = [text.replace(" server at", f" {peer} at") for text in texts]

            def answer(_argv: Any, _stdin: Any, process: Any = process, left: Any = left) -> Any:
                process.log += left.pop(0)
                return 0, ""

            host.answer = answer
            place = f"tinc {host.name} of tunnel 0"
            daemons.append(Daemon(place, end, "tm0", process, last_complaint))
        tunnel._pairs.append((daemons[0], daemons[1]))
        return tunnel

    return make


def test_what_still_holds_is_no_failure(answering: Answers) -> None:
    tunnel = answering(LIST.format(cipher=427), LIST.format(cipher=427).replace("98", "99"))
    tunnel.check_agreed()
    tunnel.check_agreed()


def test_another_cipher_than_at_the_start_is_reported(answering: Answers) -> None:
    tunnel = answering(LIST.format(cipher=427), LIST.format(cipher=91))
    tunnel.check_agreed()
    with pytest.raises(RefusedError, match=r"^tinc client of tunnel 0 on client sends to the serv"):
        tunnel.check_agreed()


def test_a_peer_that_is_out_of_reach_is_reported(
    answering: Answers,
) -> None:
    """tinc keeps its interface and its daemons; what it writes then was seen of 1.0.36."""
    up = LIST.format(cipher=427)
    tunnel = answering(up, re.sub(r"^ server at .*\n", "", up, flags=re.MULTILINE))
    tunnel.check_agreed()
    with pytest.raises(TunnelError, match=r"^tinc client of tunnel 0 on client lost its connectio"):
        tunnel.check_agreed()


def test_a_daemon_that_is_silent_now_is_not_taken_at_its_earlier_word(answering: Answers) -> None:
    tunnel = answering(LIST.format(cipher=427), "")
    tunnel.check_agreed()
    with pytest.raises(
        Exception, match="did not report what it negotiated with its peer within 0 s"
    ):
        tunnel.check_agreed()
