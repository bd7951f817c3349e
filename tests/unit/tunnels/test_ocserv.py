"""What openconnect and occtl say of a session, and where it is read wrongly if at all."""

import json
from dataclasses import replace
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.daemon import Daemon
from tunnelmark.tunnels.ocserv.driver import _VERSION, OcservTunnel, _log_words
from tunnelmark.tunnels.ocserv.log import (
    SCRIPT,
    Session,
    last_words,
    read_address,
    read_client,
    read_no_dtls,
    read_users,
)
from tunnelmark.tunnels.ocserv.params import OcservParams

SUITE = "(TLS1.3)-(ECDHE-X25519)-(ECDSA-SECP256R1-SHA256)-(AES-256-GCM)"
LOG = f"""\
Connected to HTTPS on 198.18.0.2 with ciphersuite {SUITE}
CSTP connected. DPD 32400, Keepalive 32400
Established DTLS connection (using GnuTLS). Ciphersuite (DTLS1.2)-(PSK)-(AES-256-GCM).
Configured as fd00:7473::2/128, with SSL connected and DTLS connected
tunnelmark: pre-init: address fd00:7473::9/128 MTU 1300
tunnelmark: connect: address fd00:7473::2/128 MTU 1400
"""
USER = {
    "ID": 15015,
    "MTU": "1400",
    "TLS ciphersuite": SUITE,
    "DTLS cipher": "(DTLS1.2)-(PSK)-(AES-256-GCM)",
}


def session(output: bytes) -> Session:
    (user,) = read_users(output)
    return user.session


BOTH = Session(("TLS1.3", "AES-256-GCM"), ("DTLS1.2", "AES-256-GCM"), 1400)


def test_both_ends_tell_the_same_session() -> None:
    assert read_client(LOG) == BOTH
    assert session(json.dumps([USER]).encode()) == BOTH
    assert read_address(LOG) == ip_address("fd00:7473::2")


def test_compression_is_what_both_ends_say_of_dtls() -> None:
    packed = replace(BOTH, compression="lz4")
    assert read_client(f"{LOG}DTLS connection compression using LZ4.\n") == packed
    reported = {**USER, "DTLS compression": "lz4"}
    assert session(json.dumps([reported]).encode()) == packed
    assert session(json.dumps([{**reported, "DTLS compression": "oc-lz4"}]).encode()) == packed
    assert session(json.dumps([{**reported, "DTLS compression": ""}]).encode()) == BOTH


def test_compression_that_could_not_be_checked_is_refused() -> None:
    OcservParams.model_validate({"compression": "lz4"})
    with pytest.raises(ValidationError, match="set transport to dtls, or compression to none"):
        OcservParams.model_validate({"compression": "lz4", "transport": "tls"})


def test_what_is_not_reported_is_none() -> None:
    assert read_client("") == Session(None, None, None)
    assert read_address("") is None
    assert read_address(LOG.replace("fd00:7473::2", "1.2.3.4.5")) is None
    without = {name: text for name, text in USER.items() if name != "DTLS cipher"}
    assert session(json.dumps([without]).encode()).dtls is None
    assert session(b"[{}]") == Session(None, None, None)
    assert session(b'[{"MTU": "123456", "TLS ciphersuite": 3}]') == Session(None, None, None)


def test_a_suite_that_occtl_cut_is_known_by_its_start() -> None:
    cut = "(TLS1.3)-(ECDHE-X25519)-(ECDSA-SECP256R1-SHA256)-(CHACHA20-POLY1305)"[:63]
    one = session(json.dumps([USER | {"TLS ciphersuite": cut}]).encode())
    assert one.tls == ("TLS1.3", "CHACHA20-POLY1305")
    # One that may be either of two stays what it is, which no study asks for.
    two = USER | {"TLS ciphersuite": "(TLS1.3)-(ECDHE-X25519)-(AES-"}
    assert session(json.dumps([two]).encode()).tls == ("TLS1.3", "AES-")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"error connecting to ocserv socket", "occtl wrote no JSON"),
        (b"[" * 100_000, "occtl wrote no JSON"),
        (b"[]", "occtl shows 0 users, wanted 1"),
        (b"[{}, {}]", "occtl shows 2 users, wanted 1"),
        (b"{}", "occtl shows no list of users, wanted 1"),
        (b"[3]", "occtl shows no list of users, wanted 1"),
    ],
)
def test_anything_but_one_user_is_an_error(output: bytes, words: str) -> None:
    with pytest.raises(TunnelError, match=words):
        session(output)


def test_the_clients_of_a_gateway_are_known_by_their_accounts() -> None:
    listed = [
        USER | {"Username": name, "Device": device, "MTU": mtu}
        for name, device, mtu in (("two", "vpn0", "1300"), ("one", "vpn1", "1400"))
    ]
    first, second = read_users(json.dumps(listed).encode(), 2)
    assert (first.name, first.device, first.session.mtu_bytes) == ("two", "vpn0", 1300)
    assert (second.name, second.device, second.session) == ("one", "vpn1", BOTH)
    with pytest.raises(TunnelError, match="occtl shows 2 users, wanted 3"):
        read_users(json.dumps(listed).encode(), 3)


def test_a_session_without_dtls_and_the_last_words_are_found() -> None:
    assert read_no_dtls(LOG) is None
    log = "CSTP connected. DPD 32400\nSet up UDP failed; using SSL instead\nConfigured as 1.2.3.4"
    assert read_no_dtls(log) == "Set up UDP failed; using SSL instead"
    log = "Login failed.\nFailed to obtain WebVPN cookie\nFailed to complete authentication\n"
    assert last_words(log) == "Login failed."


def test_the_script_tells_of_either_ip_version() -> None:
    assert b"INTERNAL_IP4_ADDRESS:-$INTERNAL_IP6_NETMASK" in SCRIPT


@pytest.mark.parametrize("silent", [0, 1, 2, 3])
def test_a_client_whose_dtls_handshake_gets_no_answer_logs_in_again(
    hosts: Any, site: Site, silent: int
) -> None:
    tunnel = OcservTunnel(OcservParams.model_validate({"clients": 1}))
    tunnel._passwords = ["secret"]
    host = hosts[0]

    def started(process: Any) -> None:
        no_dtls = "DTLS handshake failed: Resource temporarily unavailable, try again.\n"
        process.log = no_dtls if len(host.spawned) <= silent else LOG

    host.started = started
    gateway = Daemon("ocserv server", site.server, "a", hosts[1].spawn(["o"], name="o"), last_words)
    if silent < 3:
        client = tunnel._log_in(site, 0, gateway)
        assert client.process is host.spawned[-1]
        assert tunnel._daemons == [client]
    else:
        with pytest.raises(TunnelError, match="could not log in: DTLS handshake failed"):
            tunnel._log_in(site, 0, gateway)
    assert len(host.spawned) == min(silent + 1, 3)
    assert [one.stopped for one in host.spawned[:-1]] == [1] * (len(host.spawned) - 1)


def test_a_login_that_fails_for_another_reason_is_not_tried_again(hosts: Any, site: Site) -> None:
    tunnel = OcservTunnel(OcservParams.model_validate({"clients": 1}))
    tunnel._passwords = ["secret"]

    def started(process: Any) -> None:
        process.log, process.status = "Login failed.\n", 2

    hosts[0].started = started
    gateway = Daemon("ocserv server", site.server, "a", hosts[1].spawn(["o"], name="o"), last_words)
    with pytest.raises(TunnelError, match=r"Login failed\."):
        tunnel._log_in(site, 0, gateway)
    assert len(hosts[0].spawned) == 1


def test_a_socket_path_that_no_socket_can_have_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(site.server.host), "work_dir", PurePosixPath("/" + "x" * 90))
    tunnel = OcservTunnel(OcservParams.model_validate({}))
    with pytest.raises(RefusedError, match="is longer than 98 characters"):
        tunnel._start_server(site, 0)


def test_the_log_is_taken_from_where_the_version_writes_it(hosts: Any) -> None:
    hosts[0].answer = lambda _argv, _stdin: (0, "  -f, --foreground\n  -d, --debug=num\n")
    assert _log_words(hosts[0]) == ()
    hosts[0].answer = lambda _argv, _stdin: (0, "  -e, --log-stderr           Log to stderr\n")
    assert _log_words(hosts[0]) == ("--log-stderr",)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("ocserv[7]: main: initialized ocserv 1.1.6", "1.1.6"),
        ("main: initialized OpenConnect VPN Server 1.5.0", "1.5.0"),
    ],
)
def test_the_version_is_that_of_its_log(line: str, version: str) -> None:
    assert _VERSION.findall(line) == [version]
