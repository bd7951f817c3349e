"""What vpncmd and the log files say, and where they are read wrongly if at all."""

import pytest

from tunnelmark.tunnels.softether.log import (
    SUITE,
    Status,
    answers_sstp,
    last_words,
    loaded,
    read_status,
    refusal,
    server_version,
    sstp_session,
)
from tunnelmark.tunnels.softether.program import server_config

STATUS = """\
Connected to VPN Client "localhost".

VPN Client>AccountStatusGet t0
Item,Value
VPN Connection Setting Name,t0
Server Version,5.01
Server Build,Build 9674
Encryption,Enabled (Algorithm: TLS_AES_256_GCM_SHA384)
Use of Compression,No (No Compression)
UDP Acceleration is Supported,No
UDP Acceleration is Active,No
Session Name,SID-U-2
"""
REFUSED = """\
VPN Client>AccountPasswordSet t0 /PASSWORD:0123456789abcdef /TYPE:standard
Error occurred. (Error code: 29)
Object not found.
"""


def test_what_is_reported_is_read() -> None:
    assert read_status(STATUS) == Status("SID-U-2", SUITE, False, False, "5.01 Build 9674")


@pytest.mark.parametrize("output", ["", "Encryption\nSession Name,../../etc", "x" * 100_000])
def test_what_is_not_reported_is_none(output: str) -> None:
    assert read_status(output) == Status(None, None, None, None, "of unknown version")


def test_compression_and_packets_outside_the_stream_are_seen() -> None:
    other = STATUS.replace("Compression,No (No", "Compression,Yes (80").replace(
        "Active,No", "Active,Yes"
    )
    status = read_status(other)
    assert (status.compressed, status.udp) == (True, True)
    assert read_status(STATUS.replace("Active,No", "Active,-")).udp is None
    assert read_status(STATUS.replace("Enabled (Alg", "Disabled (Alg")).suite is None


def test_an_error_is_reported_without_the_command_and_its_password() -> None:
    assert refusal(REFUSED) == "Object not found. (error code 29)"
    assert refusal(STATUS) is None


def test_the_last_words_have_no_time() -> None:
    log = "2026-11-21 11:34:28.578 Cause: User authentication failed. (code 9)\n2026 bye\n"
    assert last_words(log) == "Cause: User authentication failed. (code 9)"
    assert last_words("") == "nothing in its log"


def test_a_server_says_whether_it_read_its_configuration() -> None:
    began = "2026-11-25 09:22:09.142 Loading the configuration file.\n"
    assert loaded(began) is None
    assert loaded(f"{began}2026-11-25 09:22:12.380 The configuration file has been loaded.\n")
    own = "Configuration file does not exist. Attempting to start using initial settings."
    assert loaded(f"{began}2026-11-25 09:22:09.142 {own}\n") is False


def test_only_the_server_whose_mistake_is_known_answers_no_sstp() -> None:
    old = server_version("Item,Value\nVersion,Version 5.01 Build 9674   (English)\n")
    new = server_version("Item,Value\nVersion,Version 5.02 Build 5188 (English)\n")
    assert (old, new) == ("5.01 Build 9674", "5.02 Build 5188")
    assert not answers_sstp(old)
    assert answers_sstp(new)
    assert answers_sstp(server_version("")), "whether it does is then seen by the call"


def test_the_session_of_sstp_is_found_among_others() -> None:
    rows = "SID-LOCALBRIDGE-1,-,Local Session,Local Bridge,Ethernet Bridge,None,638,8\n"
    mine = 'SID-TUNNELMARK-[SSTP]-3,-,Local Session,tunnelmark,10.9.0.1,1 / 1,"7,232",14\n'
    assert sstp_session(rows + mine) == "SID-TUNNELMARK-[SSTP]-3"
    assert sstp_session(rows) is None
    assert sstp_session("SID-X-[SSTP]-1;reboot,-\n") is None


def test_a_configuration_begins_with_its_first_word() -> None:
    # A byte order mark before it makes SoftEther pass over all of it.
    for tls, off in (("1.3", "Tls_Disable1_2"), ("1.2", "Tls_Disable1_3")):
        text = server_config(443, tls)  # type: ignore[arg-type]
        assert text.startswith("declare root\n")
        assert "uint Port 443\n" in text
        assert f"bool {off} true\n" in text
