"""What is read out of OpenVPN's own log; the logs are those of OpenVPN 2.6.14."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.tunnels.openvpn.log import OpenVpnReport, last_words, read_log

SERVER = """\
2026-11-21 05:00:01 WARNING: Compression for receiving enabled. Compression has been used in the \
past to break encryption.
2026-11-21 05:00:01 OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)] [LZO] [LZ4] [EPOLL] [DCO]
2026-11-21 05:00:01 library versions: OpenSSL 3.0.22 25 Aug 2026, LZO 2.10
2026-11-21 05:00:01 DCO version: N/A
2026-11-21 05:00:01 WARNING: INSECURE cipher (BF-CBC) with block size less than 128 bit (64 bit).
2026-11-21 05:00:01 TUN/TAP device tmq4o0s opened
2026-11-21 05:00:01 net_iface_mtu_set: mtu 1500 for tmq4o0s
2026-11-21 05:00:01 Socket Buffers: R=[212992->8388608] S=[212992->8388608]
2026-11-21 05:00:01 UDPv4 link local (bound): [AF_INET]198.18.0.2:1194
2026-11-21 05:00:01 UDPv4 link remote: [AF_UNSPEC]
"""
AGREED = """\
2026-11-21 05:00:02 peer info: IV_CIPHERS=BF-CBC
2026-11-21 05:00:02 Control Channel: TLSv1.3, cipher TLSv1.3 TLS_AES_256_GCM_SHA384
2026-11-21 05:00:02 WARNING: INSECURE cipher (BF-CBC) with block size less than 128 bit (64 bit).
2026-11-21 05:00:02 Initialization Sequence Completed
"""
DATA = """\
2026-11-21 05:00:02 Data Channel: cipher 'BF-CBC', auth 'SHA256', peer-id: 0, compression: 'lzo'
"""


def test_each_stage_of_a_start_is_seen() -> None:
    assert read_log("") == OpenVpnReport()
    bound = read_log(SERVER)
    assert (bound.bound, bound.completed, bound.cipher, bound.compression) == (
        True,
        False,
        None,
        None,
    )
    assert (bound.version, bound.mtu_bytes) == ("OpenVPN 2.6.14", 1500)
    half = read_log(SERVER + AGREED)
    assert (half.completed, half.cipher) == (True, None)


def test_what_was_agreed_is_in_openvpn_s_own_words() -> None:
    assert read_log(SERVER + AGREED + DATA) == OpenVpnReport(
        version="OpenVPN 2.6.14",
        libraries="OpenSSL 3.0.22 25 Aug 2026, LZO 2.10",
        bound=True,
        completed=True,
        cipher="BF-CBC",
        auth="SHA256",
        transport="udp",
        compression="lzo",
        mtu_bytes=1500,
        control_channel="TLSv1.3, cipher TLSv1.3 TLS_AES_256_GCM_SHA384",
        socket_buffers="R=[212992->8388608] S=[212992->8388608]",
        warnings=("INSECURE cipher (BF-CBC) with block size less than 128 bit (64 bit).",),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("mssfix = 1492\n  mssfix_encap = ENABLED\n  mssfix_fixed = DISABLED", "1492 bytes with"),
        ("mssfix = 1400\n  mssfix_encap = ENABLED\n  mssfix_fixed = ENABLED", "1400 bytes without"),
        ("mssfix = 0\n  mssfix_encap = DISABLED\n  mssfix_fixed = DISABLED", "off"),
    ],
)
def test_what_is_clamped_stands_in_the_options_before_the_banner(options: str, said: str) -> None:
    report = read_log(f"Current Parameter Settings:\n  {options}\n{SERVER}")
    assert (report.mssfix or "").startswith(said)
    assert report.bound


def test_a_data_channel_without_compression_says_none() -> None:
    report = read_log(SERVER + "Data Channel: cipher 'AES-256-GCM', peer-id: 0\n")
    assert (report.cipher, report.auth, report.compression) == ("AES-256-GCM", None, "none")


def test_a_client_binds_no_port_and_is_ready_all_the_same() -> None:
    assert read_log("UDPv4 link local: (not bound)").bound


def test_the_log_of_an_earlier_process_proves_nothing() -> None:
    report = read_log(SERVER + AGREED + DATA + SERVER)
    assert (report.bound, report.completed, report.cipher) == (True, False, None)


def test_kernel_offload_is_noticed() -> None:
    assert read_log("DCO device tmq4o0c opened").kernel_offload
    assert not read_log("DCO version: N/A").kernel_offload


def test_epochs_of_keys_are_noticed() -> None:
    log = "2026-11-24 23:42:41 us=1 Outgoing Epoch Data key 1: Cipher 'AES-256-GCM' initialized"
    assert read_log(log).epoch
    assert not read_log(SERVER + AGREED + DATA).epoch


def test_last_words_are_the_reason_and_not_the_farewell() -> None:
    log = (
        SERVER
        + "2026-11-21 05:00:05 VERIFY ERROR: depth=0, error=unable to get issuer: CN=x, serial=1\n"
        + "2026-11-21 05:00:05 TLS_ERROR: BIO read tls_read_plaintext error\n"
        + "2026-11-21 05:00:05 TLS Error: TLS handshake failed\n"
        + "2026-11-21 05:00:05 Closing TUN/TAP interface\n"
        + "2026-11-21 05:00:05 SIGTERM[soft,tls-error] received, process exiting\n"
    )
    assert last_words(log) == "VERIFY ERROR: depth=0, error=unable to get issuer: CN=x, serial=1"
    assert last_words("TLS Error: TLS handshake failed") == "TLS Error: TLS handshake failed"
    refused = "Options error: --cipher X not found\nUse --help for more information.\n"
    assert last_words(refused) == "Options error: --cipher X not found"
    assert last_words("TLS: Initial packet from x") == "TLS: Initial packet from x"
    assert last_words("\n") == "nothing in its log"


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    read_log(text)
    assert last_words(text)


@given(st.integers(10**6, 10**30))
def test_a_number_without_end_is_no_mtu(number: int) -> None:
    assert read_log(f"net_iface_mtu_set: mtu {number}0 for x").mtu_bytes is None


def test_options_are_found_behind_the_times_of_a_real_log() -> None:
    """Each line has a time before it, and options two more spaces."""
    lines = ("  mssfix = 1480", "  mssfix_encap = ENABLED", "  mssfix_fixed = ENABLED")
    log = "\n".join(f"2026-11-22 08:49:13 us=380883 {line}" for line in lines)
    assert read_log(log).mssfix == "1480 bytes without encapsulation"
