"""What openconnect and occtl say of a session, and where it is read wrongly if at all."""

import json
from ipaddress import ip_address

import pytest

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.ocserv_log import (
    SCRIPT,
    Session,
    last_words,
    read_address,
    read_client,
    read_no_dtls,
    read_session,
)

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
BOTH = Session(("TLS1.3", "AES-256-GCM"), ("DTLS1.2", "AES-256-GCM"), 1400)


def test_both_ends_tell_the_same_session() -> None:
    assert read_client(LOG) == BOTH
    assert read_session(json.dumps([USER]).encode()) == BOTH
    assert read_address(LOG) == ip_address("fd00:7473::2")


def test_what_is_not_told_is_none() -> None:
    assert read_client("") == Session(None, None, None)
    assert read_address("") is None
    assert read_address(LOG.replace("fd00:7473::2", "1.2.3.4.5")) is None
    without = {name: text for name, text in USER.items() if name != "DTLS cipher"}
    assert read_session(json.dumps([without]).encode()).dtls is None
    assert read_session(b"[{}]") == Session(None, None, None)
    assert read_session(b'[{"MTU": "123456", "TLS ciphersuite": 3}]') == Session(None, None, None)


def test_a_suite_that_occtl_cut_is_known_by_its_start() -> None:
    cut = "(TLS1.3)-(ECDHE-X25519)-(ECDSA-SECP256R1-SHA256)-(CHACHA20-POLY1305)"[:63]
    session = read_session(json.dumps([USER | {"TLS ciphersuite": cut}]).encode())
    assert session.tls == ("TLS1.3", "CHACHA20-POLY1305")
    # One that may be either of two stays what it is, which no study asks for.
    two = USER | {"TLS ciphersuite": "(TLS1.3)-(ECDHE-X25519)-(AES-"}
    assert read_session(json.dumps([two]).encode()).tls == ("TLS1.3", "AES-")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"error connecting to ocserv socket", "occtl wrote no JSON"),
        (b"[" * 100_000, "occtl wrote no JSON"),
        (b"[]", "occtl shows 0 users, wanted 1"),
        (b"[{}, {}]", "occtl shows 2 users, wanted 1"),
        (b"{}", "occtl shows no list of users, wanted 1"),
    ],
)
def test_anything_but_one_user_is_an_error(output: bytes, words: str) -> None:
    with pytest.raises(TunnelError, match=words):
        read_session(output)


def test_a_session_without_dtls_and_the_last_words_are_found() -> None:
    assert read_no_dtls(LOG) is None
    log = "CSTP connected. DPD 32400\nSet up UDP failed; using SSL instead\nConfigured as 1.2.3.4"
    assert read_no_dtls(log) == "Set up UDP failed; using SSL instead"
    log = "Login failed.\nFailed to obtain WebVPN cookie\nFailed to complete authentication\n"
    assert last_words(log) == "Login failed."


def test_the_script_tells_of_either_ip_version() -> None:
    assert b"INTERNAL_IP4_ADDRESS:-$INTERNAL_IP6_NETMASK" in SCRIPT
