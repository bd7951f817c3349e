"""Tunnels in user space against programs that refuse: each tells why, and leaves nothing."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from places import interfaces
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import LabError, TunnelError
from tunnelmark.model.topology import Topology
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels import daemon, tinc
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.nebula import NebulaTunnel
from tunnelmark.tunnels.ocserv import driver as ocserv
from tunnelmark.tunnels.ocserv.driver import OcservTunnel, _pin
from tunnelmark.tunnels.openvpn import OpenVpnTunnel
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.softether.driver import SoftEtherTunnel
from tunnelmark.tunnels.ssh_tun.driver import SshTunTunnel, _private
from tunnelmark.tunnels.tinc import TincTunnel

pytestmark = pytest.mark.lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Ledger() as ledger, Lab(ledger, Topology(), None, engine="") as lab:
        yield lab


MINE = ("ca.crt", "client-0.crt", "client-0.key")


class TincStranger(TincTunnel):
    """The client has the key of somebody else than the server knows."""

    def _put(self, site: Site, number: int) -> None:
        super()._put(site, number)
        host = site.client.host
        key = host.work_dir / f"tinc-{number}" / "rsa_key.priv"
        host.put(key, self._keys("client").private)


class TincOtherCipher(TincTunnel):
    """The server takes another cipher than the study asks for; tinc lets the receiver choose."""

    def _cipher(self, side: Any) -> str:
        return "AES-128-CBC" if side == "server" else super()._cipher(side)


class NebulaStranger(NebulaTunnel):
    """The client's certificate is of another authority."""

    def _put(self, site: Site, number: int) -> None:
        super()._put(site, number)
        theirs = {
            name: site.client.host.get(self._folder(site.client.host) / name) for name in MINE
        }
        self._folder_name += "-again"
        self._put_authority(site)
        super()._put(site, number)
        for name, data in theirs.items():
            site.client.host.put(self._folder(site.client.host) / name, data)


class NebulaOtherCipher(NebulaTunnel):
    """The two ends are given different ciphers."""

    def _cipher(self, side: Any) -> str:
        return "CHACHA20-POLY1305" if side == "client" else super()._cipher(side)


class SshStranger(SshTunTunnel):
    """The client has a key that the server does not know."""

    def _put(self, site: Site) -> None:
        super()._put(site)
        host = site.client.host
        host.put(host.work_dir / "ssh" / "id", _private(self._key("client")))


class SshStrangeServer(SshTunTunnel):
    """The server has another key than the client knows."""

    def _put(self, site: Site) -> None:
        super()._put(site)
        host = site.server.host
        host.put(host.work_dir / "ssh" / "host_key", _private(self._key("server")))


class SshOtherCipher(SshTunTunnel):
    """The two ends have no cipher in common."""

    def _cipher(self, side: Any) -> str:
        return "aes256-ctr" if side == "client" else super()._cipher(side)


class SshNoDevice(SshTunTunnel):
    """The server allows no tunnel."""

    def _start_server(self, site: Site, number: int) -> Any:
        host: Any = site.server.host
        original = host.put

        def put(path: Any, data: bytes, **more: Any) -> None:
            changed = data.replace(b"PermitTunnel point-to-point", b"PermitTunnel no")
            original(path, changed if path.name.endswith(".conf") else data, **more)

        host.put = put
        try:
            return super()._start_server(site, number)
        finally:
            host.put = original


class OtherStaticKey(OpenVpnTunnel):
    """The client has another static key."""

    def _put_identities(self, site: Site) -> None:
        super()._put_identities(site)
        path = site.client.host.work_dir / "openvpn" / "secret.key"
        lines = site.client.host.get(path).decode().splitlines()
        # Another order of the lines is another key.
        text = "\n".join([lines[0], *reversed(lines[1:-1]), lines[-1], ""])
        site.client.host.put(path, text.encode())


class OtherTlsCryptKey(OtherStaticKey):
    """The client's key for tls-crypt is another."""


class OcservOtherPassword(OcservTunnel):
    """The client has another password."""

    def _put(self, site: Site) -> None:
        super()._put(site)
        self._passwords = [f"{password[::-1]}0" for password in self._passwords]


class OcservStranger(OcservTunnel):
    """The server has another key than the client knows."""

    def _put(self, site: Site) -> None:
        super()._put(site)
        other = RunAuthority("stranger", datetime.now(UTC)).issue("stranger", "server")
        self._pin = _pin(other.certificate)


class OcservOtherCipher(OcservTunnel):
    """The two ends have no cipher in common."""

    def _priority(self, side: Any) -> str | None:
        only = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305"
        return only if side == "client" else super()._priority(side)


class OcservNoDtls(OcservTunnel):
    """The client hears nothing of DTLS, so that all goes inside TLS."""

    def _start_server(self, site: Site, number: int) -> Any:
        self.params = self.params.model_copy(update={"transport": "tls"})
        try:
            return super()._start_server(site, number)
        finally:
            self.params = self.params.model_copy(update={"transport": "dtls"})


class SoftEtherOtherPassword(SoftEtherTunnel):
    """The client has another password."""

    def _accounts(self, site: Site, passwords: Any) -> list[str]:
        return super()._accounts(site, [password[::-1] + "0" for password in passwords])


class SoftEtherNoSuchCommand(SoftEtherTunnel):
    """The server is another version, that does not know a command."""

    def _hubs(self, site: Site, passwords: Any) -> list[str]:
        return [*super()._hubs(site, passwords), "ExtOptionSet NoSuchOption /VALUE:1"]


REFUSALS: list[tuple[type[Tunnel], dict[str, object], str]] = [
    (
        SoftEtherOtherPassword,
        {},
        (
            r"softether client of tunnel 0 on client could not log in: User authentication failed. "
            r"\(code 9\)"
        ),
    ),
    (
        SoftEtherNoSuchCommand,
        {},
        (
            r"softether server on server refused a command: Object not found\. "
            r"\(error code 29\)"
        ),
    ),
    (
        OcservOtherPassword,
        {},
        (
            r"ocserv client of tunnel 0 on client ended with status 1 before it could log in: "
            r"Login failed\.; last messages of the server: .+"
        ),
    ),
    (
        OcservStranger,
        {},
        (
            r"ocserv client of tunnel 0 on client ended with status 1 before it could log in: "
            r"None of the 1 fingerprint\(s\) specified via --servercert match .*; last messages of "
            r"the server: .+"
        ),
    ),
    (
        OcservOtherCipher,
        {},
        (
            r"ocserv client of tunnel 0 on client ended with status 1 before it could log in: .+"
            r"; last messages of the server: .*No supported cipher suites have been found\."
        ),
    ),
    (
        OcservNoDtls,
        {},
        (
            r"ocserv client of tunnel 0 on client could not log in: Set up UDP failed; using SSL "
            r"instead; last messages of the server: .+"
        ),
    ),
    (
        SshStranger,
        {},
        (
            r"ssh_tun \w+ of tunnel 0 on \w+ ended with status 255 before it could log in "
            r"and agree on keys: .*(Permission denied|Connection closed by authenticating user).*"
        ),
    ),
    (
        SshStrangeServer,
        {},
        (
            r"ssh_tun \w+ of tunnel 0 on \w+ ended with status 255 before it could log in "
            r"and agree on keys: (Host key verification failed\.|.*Connection (closed|reset).*)"
        ),
    ),
    (
        SshOtherCipher,
        {},
        (
            r"ssh_tun \w+ of tunnel 0 on \w+ ended with status 255 before it could log in "
            r"and agree on keys: .*no matching cipher found.*"
        ),
    ),
    (
        SshNoDevice,
        {},
        (
            r"ssh_tun client of tunnel 0 on client ended with status 255 before it could open its "
            r"device: .*Tunnel forwarding failed"
        ),
    ),
    (
        TincStranger,
        {},
        # What a wrong key deciphers to is read as lines: one time in eight it has no end of a line,
        # and both ends wait for it until they give up. Now and then a line begins like a message.
        (
            r"tinc client of tunnel 0 on client (?:could not meet its peer: (?:Bogus data received "
            r"from|Error while processing METAKEY from) .*|did not meet its peer within 8 s: "
            r"Timeout from server .* during authentication)"
        ),
    ),
    (
        TincOtherCipher,
        {},
        (
            r"tinc client of tunnel 0 on client sends to the server with cipher 419, the "
            r"study asks for 427"
        ),
    ),
    (
        NebulaStranger,
        {},
        (
            r"no echo through tunnel 0 of nebula within 4 s: .* last messages of the client: .+; "
            r"of the server: .*(?i:certificate|unknown issuer|invalid).*"
        ),
    ),
    (
        NebulaOtherCipher,
        {},
        (
            r"no echo through tunnel 0 of nebula within 4 s: .* last messages of the client: "
            r"Failed to call noise.ReadMessage: .*authentication failed; of the server: .+"
        ),
    ),
    (
        OtherStaticKey,
        {"key_exchange": "static", "cipher": "AES-256-CBC"},
        (
            r"openvpn \w+ of tunnel 0 on \w+ could not [a-z ]+: its peer has another secret: "
            r"Authenticate/Decrypt packet error: packet HMAC authentication failed"
        ),
    ),
    (
        OtherTlsCryptKey,
        {"control": "tls-crypt"},
        (
            r"openvpn \w+ of tunnel 0 on \w+ could not [a-z ]+: its peer has another secret: "
            r"tls-crypt unwrap error: packet authentication failed"
        ),
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=[driver.__name__ for driver, *_ in REFUSALS])
def test_a_peer_that_refuses_is_reported_in_the_program_s_own_words(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, case: tuple[type[Tunnel], dict[str, object], str]
) -> None:
    driver, params, words = case
    tunnel = prepared(lab, driver, params)
    # Long enough for every program here to say why, and no longer.
    monkeypatch.setattr(daemon, "FIRST_PACKET_LIMIT_S", 4.0)
    monkeypatch.setattr(tinc, "_MEET_LIMIT_S", 8.0)
    monkeypatch.setattr(ocserv, "_LOGIN_LIMIT_S", 10.0)
    refused(lab, tunnel, words)


def prepared(lab: Lab, driver: type[Tunnel], params: dict[str, object]) -> Tunnel:
    tunnel = driver(driver.params_type.model_validate(params))
    assert tunnel.unavailable(lab.client_host) is None
    return tunnel


def refused(lab: Lab, tunnel: Tunnel, words: str) -> None:
    try:
        with pytest.raises((TunnelError, LabError)) as caught:
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert re.fullmatch(words, str(caught.value)), caught.value
    for host in (lab.client_host, lab.server_host):
        assert [process.name for process in host.spawned if process.poll() is None] == []
        assert interfaces(host) == {"lo", "eth0"}


@pytest.mark.parametrize(
    ("driver", "program"),
    [
        (TincTunnel, "tincd"),
        (NebulaTunnel, "nebula"),
        (OcservTunnel, "ocserv"),
        (SshTunTunnel, "/usr/sbin/sshd"),
    ],
)
def test_a_program_that_is_gone_when_it_is_started_is_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, driver: type[Tunnel], program: str
) -> None:
    tunnel = prepared(lab, driver, {})
    host: Any = lab.server_host
    original = host.spawn
    monkeypatch.setattr(
        host, "spawn", lambda argv, **more: original([f"tm-no-such-{argv[0]}", *argv[1:]], **more)
    )
    refused(
        lab,
        tunnel,
        rf"{driver.kind} server of tunnel 0 on server ended with status \d+ before it could "
        rf"\w+: .*tm-no-such-{program}: (No such file or directory|not found)",
    )
