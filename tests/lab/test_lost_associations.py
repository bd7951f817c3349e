"""Ends that lost each other, while daemons and interfaces stay, fail the check after a trial."""

import time
from collections.abc import Callable, Iterator

import pytest

from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.topology import Topology
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.tunnels.softether.driver import SoftEtherTunnel
from tunnelmark.tunnels.softether.log import read_status
from tunnelmark.tunnels.tinc import TincTunnel

pytestmark = pytest.mark.lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine=find_engine()) as lab:
        yield lab


def forget_the_client(lab: Lab, tunnel: Tunnel) -> None:
    """tincd(8): on HUP it closes connections to hosts whose file is gone."""
    assert isinstance(tunnel, TincTunnel)
    lab.server_host.run(["rm", str(lab.server_host.work_dir / "tinc-0" / "hosts" / "client")])
    _, server = tunnel._pairs[0]
    lab.server_host.run(["kill", "-HUP", str(server.process.host_pid)])


def disconnect_the_session(lab: Lab, tunnel: Tunnel) -> None:
    assert isinstance(tunnel, SoftEtherTunnel)
    own = read_status(tunnel._command(lab.client_host, "client", ["AccountStatusGet t0"]))
    words = ["Hub t0", f"SessionDisconnect {own.session}"]
    tunnel._command(lab.server_host, "server", words)


def _log(tunnel: Tunnel) -> str:
    return "\n".join(end.log()[-3000:] for end in getattr(tunnel, "_daemons", ()))


def reported(tunnel: Tunnel) -> str | None:
    for _ in range(100):
        try:
            tunnel.check_agreed()
        except TunnelError as error:
            return str(error)
        time.sleep(0.1)
    return None


@pytest.mark.parametrize(
    ("kind", "lose", "words"),
    [
        ("tinc", forget_the_client, "lost its connection to the "),
        # Whichever end is asked between the session's end and the client's next one.
        ("softether", disconnect_the_session, " refused a command: "),
    ],
)
def test_a_lost_association_fails_the_check(
    lab: Lab, kind: str, lose: Callable[[Lab, Tunnel], None], words: str
) -> None:
    driver = tunnel_kinds()[kind]
    tunnel = driver(driver.params_type.model_validate({}))
    assert tunnel.unavailable(lab.client_host) is None
    try:
        tunnel.up(lab.site)
        tunnel.check_agreed()
        lose(lab, tunnel)
        assert words in (reported(tunnel) or ""), _log(tunnel)
        # No daemon died; SoftEther's client gives its interface up some time after the session.
        problem = tunnel.problem()
        assert problem is None or (kind == "softether" and problem.endswith(" vanished")), problem
    finally:
        tunnel.down()
