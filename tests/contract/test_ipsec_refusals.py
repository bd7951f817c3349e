"""IPsec that the two ends do not agree on: charon's own words, and nothing stays. In user space."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from places import interfaces
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import TunnelError
from tunnelmark.model.topology import Topology
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.ikev2 import Ikev2Tunnel
from tunnelmark.tunnels.ipsec import IpsecTunnel
from tunnelmark.tunnels.pki import RunAuthority

pytestmark = pytest.mark.lab


class OtherSecret(IpsecTunnel):
    """The client holds the secret of somebody else."""

    def _document(self, site: Site, end: Any, passwords: Any) -> Any:
        return super()._document(site, end, ["guessed"] if end.side == "client" else passwords)


class OtherSuite(IpsecTunnel):
    """The server takes another cipher than the client offers."""

    def _child_settings(self, site: Site, side: Any, number: int) -> Any:
        settings = dict(super()._child_settings(site, side, number))
        return settings | ({"esp_proposals": "aes128-sha1"} if side == "server" else {})


class OtherAuthority(IpsecTunnel):
    """The client's certificate is of another run."""

    def _prepare(self, site: Site, clients: Any, server: Any) -> None:
        (client,) = clients
        put = client.daemon.put_identity

        def stranger(authority: bytes, _identity: Any, **more: Any) -> None:
            name = f"client.{site.prefix}"
            own = RunAuthority("stranger", datetime.now(UTC))
            put(authority, own.issue(name, "client"), **more)

        client.daemon.put_identity = stranger
        super()._prepare(site, clients, server)


CASES = [
    (
        OtherSecret,
        {},
        (
            r".*last messages of the client: \[IKE\] received AUTHENTICATION_FAILED notify error; "
            r"of the server: \[IKE\] tried 1 shared key for .*, but MAC mismatched"
        ),
    ),
    (
        OtherSuite,
        {"suite": "AES-256-GCM"},
        (
            r".*last messages of the client: \[IKE\] received NO_PROPOSAL_CHOSEN notify, no "
            r"CHILD_SA "
            r"built; of the server: \[IKE\] no acceptable proposal found"
        ),
    ),
    (
        OtherAuthority,
        {"auth": "cert"},
        (
            r".*last messages of the client: \[IKE\] received AUTHENTICATION_FAILED notify error; "
            r"of the server: \[\w+\] no issuer certificate found for .*"
        ),
    ),
    (
        OtherSecret,
        {"ike": "v1"},
        r".*last messages of the client: .*peer not responding; of the server: .*decrypt.*",
    ),
]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine="") as lab:
        yield lab


def prepared(driver: type[Tunnel], lab: Lab, **params: object) -> Tunnel:
    tunnel = driver(driver.params_type.model_validate({"implementation": "libipsec", **params}))
    assert tunnel.unavailable(lab.client_host) is None
    return tunnel


def nothing_stays(lab: Lab) -> None:
    for host in (lab.client_host, lab.server_host):
        assert [process.name for process in host.spawned if process.poll() is None] == []
        assert interfaces(host) == {"lo", "eth0"}


@pytest.mark.parametrize(("driver", "params", "words"), CASES)
def test_a_peer_that_refuses_is_reported_in_charon_s_own_words(
    lab: Lab, driver: type[Tunnel], params: dict[str, object], words: str
) -> None:
    tunnel = prepared(driver, lab, **params)
    try:
        with pytest.raises(TunnelError) as caught:
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert re.fullmatch(words, str(caught.value)), caught.value
    nothing_stays(lab)


@pytest.mark.parametrize("driver", [IpsecTunnel, Ikev2Tunnel])
def test_a_charon_that_is_killed_while_it_negotiates_is_reported(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, driver: type[Any]
) -> None:
    tunnel = prepared(driver, lab)
    original = driver._establish

    def first_kill(self: Any, site: Site, client: Any, server: Any) -> None:
        server.daemon.process.kill()
        server.daemon.process.wait(10)
        original(self, site, client, server)

    monkeypatch.setattr(driver, "_establish", first_kill)
    try:
        with pytest.raises(TunnelError) as caught:
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert "charon of the server on server ended with status -9" in str(caught.value)
    nothing_stays(lab)


class Reached(IpsecTunnel):
    """Lets a test at a daemon as another administrator of the host would be."""

    def at_client(self, *arguments: str) -> None:
        assert self._ends[0].daemon._swanctl(*arguments).returncode == 0


def test_what_is_no_longer_agreed_is_seen(lab: Lab) -> None:
    tunnel = Reached(IpsecTunnel.params_type.model_validate({"implementation": "libipsec"}))
    try:
        tunnel.up(lab.site)
        tunnel.check_agreed()
        # New keys are no other agreement.
        tunnel.at_client("--rekey", "--child", "esp0")
        tunnel.check_agreed()
        tunnel.at_client("--terminate", "--child", "esp0", "--force")
        with pytest.raises(TunnelError, match="associations esp0, must have 1"):
            tunnel.check_agreed()
    finally:
        tunnel.down()
