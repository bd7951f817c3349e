"""What is read out of pppd's own log; the logs are those of pppd 2.4.9 on both ends of PPTP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.tunnels.ppp.log import PppReport, last_words, read_log

LINK = """\
using channel 1
Renamed interface ppp0 to tmxc
Using interface tmxc
Connect: tmxc <--> /dev/pts/0
sent [LCP ConfReq id=0x1 <mru 1400> <asyncmap 0x0> <magic 0x181ee5bd> <pcomp> <accomp>]
rcvd [LCP ConfReq id=0x1 <mru 1300> <asyncmap 0x0> <auth chap MS-v2> <magic 0xf0> <pcomp> <accomp>]
sent [LCP ConfAck id=0x1 <mru 1300> <asyncmap 0x0> <auth chap MS-v2> <magic 0xf0> <pcomp> <accomp>]
rcvd [LCP ConfAck id=0x1 <mru 1400> <asyncmap 0x0> <magic 0x181ee5bd> <pcomp> <accomp>]
rcvd [CHAP Challenge id=0x65 <dd8cd42f>, name = "pptpd"]
sent [CHAP Response id=0x65 <fb8eb2db>, name = "tmuser"]
"""
SUCCESS = """\
rcvd [CHAP Success id=0x65 "S=0A2583 M=Access granted"]
CHAP authentication succeeded
"""
MPPE = """\
sent [CCP ConfReq id=0x1 <mppe +H -M +S -L -D -C>]
rcvd [CCP ConfAck id=0x1 <mppe +H -M +S -L -D -C>]
MPPE 128-bit stateless compression enabled
"""
ADDRESSES = """\
sent [IPCP ConfReq id=0x1 <addr 0.0.0.0>]
local  LL address fe80::2
remote LL address fe80::1
local  IP address 198.19.0.2
remote IP address 198.19.0.1
"""
REFUSED = """\
CHAP authentication succeeded
rcvd [CCP ConfReq id=0x1 <deflate 15> <deflate(old#) 15> <bsd v1 15>]
MPPE required but peer negotiation failed
sent [LCP TermReq id=0x2 "MPPE required but peer negotiation failed"]
Discarded non-LCP packet when LCP not open
Connection terminated.
Waiting for 1 child processes...
  script pptp 198.18.0.2 --nolaunchpppd, pid 355
Script pptp 198.18.0.2 --nolaunchpppd finished (pid 355), status = 0x0
"""


def test_everything_that_was_agreed_is_read() -> None:
    assert read_log(LINK + SUCCESS + MPPE + ADDRESSES) == PppReport(
        interface="tmxc",
        authentication="MS-CHAPv2",
        mppe="128-stateless",
        compression="none",
        receive_bytes=1400,
        send_bytes=1300,
        sends_without_address=True,
        sends_short_protocol=True,
        local_ipv4="198.19.0.2",
        remote_ipv4="198.19.0.1",
        local_ipv6="fe80::2",
    )


def test_an_end_that_has_said_nothing_yet() -> None:
    report = read_log(LINK)
    assert (report.up, report.authentication, report.mppe) == (False, None, "none")
    assert read_log("") == PppReport()


def test_what_this_end_sends_follows_from_what_the_peer_asked_for() -> None:
    peer = "sent [LCP ConfAck id=0x1 <mru 1400> <magic 0x1>]\n"
    own = "rcvd [LCP ConfAck id=0x1 <mru 1400> <pcomp> <accomp>]\n"
    report = read_log(peer + own)
    assert (report.sends_without_address, report.sends_short_protocol) == (False, False)


@pytest.mark.parametrize(
    ("line", "mppe", "compression"),
    [
        ("MPPE 40-bit stateless compression enabled", "40", "none"),
        ("MPPE 40-bit stateful compression enabled", "40-stateful", "none"),
        ("MPPE 128-bit stateful compression enabled", "128-stateful", "none"),
        ("Deflate (15) compression enabled", "none", "deflate"),
        ("BSD-Compress (15) compression enabled", "none", "bsd"),
        ("Deflate (15) receive compression enabled", "none", "deflate in one direction"),
        (
            "Deflate (15) / BSD-Compress (12) compression enabled",
            "none",
            "Deflate (15) / BSD-Compress (12)",
        ),
        ("MPPE 128-bit stateless receive compression enabled", "mixed", None),
    ],
)
def test_encryption_and_compression(line: str, mppe: str, compression: str | None) -> None:
    report = read_log(f"{LINK}{line}\n")
    assert report.mppe == mppe
    assert report.compression == (compression or line.removesuffix(" compression enabled"))


def test_what_was_switched_off_again_is_off() -> None:
    report = read_log(LINK + MPPE + "Compression disabled by peer.\n")
    assert report.mppe == "none"
    report = read_log(LINK + MPPE + "Lost compression sync: disabling compression\n")
    assert report.mppe == "none"
    assert report.warnings == ()


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (REFUSED, "MPPE required but peer negotiation failed"),
        (
            "MS-CHAP authentication failed: E=691\nCHAP authentication failed\nModem hangup\n",
            "CHAP authentication failed",
        ),
        (
            "LCP: timeout sending Config-Requests\nConnection terminated.\nModem hangup\n",
            "LCP: timeout sending Config-Requests",
        ),
        ("Modem hangup\nConnection terminated.\n", "Modem hangup"),
        (
            'sent [LCP TermReq id=0x2 "No network protocols running"]\nConnection terminated.\n',
            'sent [LCP TermReq id=0x2 "No network protocols running"]',
        ),
        (
            "Could not determine remote IP address\nConnection terminated.\n",
            "Could not determine remote IP address",
        ),
        (
            'Terminating on signal 15\nsent [LCP TermReq id=0x2 "User request"]\nConnection term',
            "Terminating on signal 15",
        ),
        ("sent [LCP ConfReq id=0x1 <mru 1400>]\n", "sent [LCP ConfReq id=0x1 <mru 1400>]"),
        ("", "nothing in its log"),
        (LINK + "x" * 5000, "x" * 300),
    ],
)
def test_the_last_words_name_the_cause(log: str, words: str) -> None:
    assert last_words(log) == words


@given(st.text(max_size=300))
def test_no_text_makes_it_fail(text: str) -> None:
    for log in (
        text,
        LINK + text,
        f"sent [LCP ConfAck id=0x1 <mru {text}>]",
        f"Using interface {text}",
    ):
        read_log(log)
        assert len(last_words(log)) <= 300
