"""File transfers: what programs tell, what is made of it, and what a study may ask for."""

import json
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest
from cryptography import x509
from pydantic import ValidationError

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.workloads import curl, ssh_server
from tunnelmark.workloads.corpus import File
from tunnelmark.workloads.file_transfer_params import FileTransferParams
from tunnelmark.workloads.transfers import Fetched, figures
from tunnelmark.workloads.web_server import certify, configuration

FILES = (File("a.txt", b"1" * 1000), File("b.txt", b"2" * 3000))
LENGTHS = {"a.txt": 1000, "b.txt": 3000}


def account(name: str, **changes: Any) -> str:
    values = {
        "exitcode": 0,
        "errormsg": None,
        "http_code": 200,
        "num_connects": 1,
        "size_download": LENGTHS.get(name, 0),
        "size_upload": 0,
        "time_connect": 0.1,
        "time_appconnect": 0.0,
        "time_starttransfer": 0.2,
        "time_total": 0.5,
        "url": f"http://[fd00::1]:7700/{name}",
        "unknown": [1],
    }
    return json.dumps(values | changes)


def by_curl(*lines: str, download: bool = True) -> Fetched:
    transfers = [curl.parse_transfer(line) for line in lines]
    return Fetched.by_curl("0", transfers, LENGTHS, download=download)


def test_times_of_curl_add_up() -> None:
    one = by_curl(account("a.txt"), account("b.txt", time_total=1.5, time_starttransfer=0.4))
    found = figures([one], FILES, enough=False)
    assert found["transfer_time_ns"] == 2e9
    assert found["transfer_goodput_bit_s"] == 4000 * 8 / 2
    assert found["transfer_file_p50_ns"] == 1e9
    assert found["transfer_file_max_ns"] == 1.5e9
    assert found["transfer_file_goodput_p50_bit_s"] == 16000
    assert found["transfer_ttfb_p50_ns"] == pytest.approx(0.3e9)
    assert found["transfer_ttfb_max_ns"] == 0.4e9
    assert found["transfer_connect_p50_ns"] == 0.1e9


def test_paths_at_once_take_as_long_as_the_slowest() -> None:
    quick = by_curl(account("a.txt"), account("b.txt"))
    slow = by_curl(account("a.txt"), account("b.txt", time_total=3.5))
    found = figures([quick, slow], FILES, enough=False)
    assert found["transfer_time_ns"] == 4e9
    assert found["transfer_goodput_bit_s"] == 8000 * 8 / 4


def test_what_did_not_come_to_its_end_has_no_time() -> None:
    one = by_curl(account("a.txt"), account("b.txt", exitcode=18))
    found = figures([one], FILES, enough=False)
    assert found["transfer_time_ns"] is None
    assert found["transfer_goodput_bit_s"] is None
    assert found["transfer_file_p50_ns"] == 0.5e9
    assert figures([one], FILES, enough=True)["transfer_goodput_bit_s"] == 16000
    nothing = figures([Fetched("0", (), None)], FILES, enough=False)
    assert set(nothing.values()) == {None}


def test_tls_counts_into_the_set_up_and_a_kept_connection_has_none() -> None:
    secure = by_curl(account("a.txt", time_appconnect=0.3), account("b.txt", num_connects=0))
    assert [file.connect_s for file in secure.files] == [0.3, None]


def test_an_upload_has_no_first_byte() -> None:
    one = by_curl(account("a.txt", http_code=201, size_upload=1000), download=False)
    assert [(f.payload_bytes, f.first_byte_s) for f in one.files] == [(1000, None)]


def test_a_refused_status_is_no_transfer() -> None:
    assert by_curl(account("a.txt", http_code=404)).files == ()


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("", "document"),
        ("[]", "document"),
        (account("a.txt", time_total=-1.0), "time_total"),
        (account("a.txt", time_total="1"), "time_total"),
        (account("a.txt", size_download=-1), "size_download"),
        (account("x" * 400), "url"),
    ],
)
def test_a_damaged_account_is_refused_with_the_place(line: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"damaged at {place}"):
        curl.parse_transfer(line)


def test_a_file_nobody_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"was not requested: 'c\.txt'"):
        by_curl(account("c.txt"))


BEGIN = 1_700_000_000_000_000_000


def test_clocks_before_and_after_each_program() -> None:
    lines = [f"{BEGIN} {BEGIN + 10**9} a.txt", f"{BEGIN + 2 * 10**9} {BEGIN + 5 * 10**9} b.txt"]
    found = figures([Fetched.by_clocks("0", lines, LENGTHS)], FILES, enough=False)
    assert found["transfer_time_ns"] == 5e9
    assert found["transfer_file_p50_ns"] == 2e9
    assert found["transfer_ttfb_p50_ns"] is None


def test_one_program_for_all_files_tells_only_of_all() -> None:
    one = Fetched.by_clock("0", [f"{BEGIN} {BEGIN + 2 * 10**9}"], LENGTHS)
    found = figures([one], FILES, enough=False)
    assert found["transfer_time_ns"] == 2e9
    assert found["transfer_goodput_bit_s"] == 16000
    assert found["transfer_file_p50_ns"] is None
    assert Fetched.by_clock("0", [], LENGTHS).files == ()


@pytest.mark.parametrize("line", ["", "1 2 a.txt", f"{BEGIN} {BEGIN - 1} a.txt", f"{BEGIN} x a"])
def test_a_damaged_clock_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"damaged|went back"):
        Fetched.by_clocks("0", [line], LENGTHS)


TRACE = """\
23:59:59.500000 *   Trying 127.0.0.1:7700...
23:59:59.600000 * SSL connection using TLSv1.3 / TLS_AES_256_GCM_SHA384
23:59:59.700000 < HTTP/1.1 200 OK
00:00:00.100000 *   Trying 127.0.0.1:7700...
00:00:01.250000 * Connection #0 to host 127.0.0.1 left intact
"""


def test_a_trace_is_read_over_midnight() -> None:
    assert curl.span_s(TRACE) == pytest.approx(1.75)
    assert curl.negotiated(TRACE) == {("TLSv1.3", "TLS_AES_256_GCM_SHA384")}
    assert curl.complaint(TRACE) is None
    assert curl.span_s("") is None
    assert curl.span_s(TRACE.splitlines()[0]) is None


def test_a_refusal_is_reported_with_the_kernels_word() -> None:
    trace = (
        "10:55:20.132859 * connect to 127.0.0.1 port 1 failed: Connection refused\n"
        "curl: (7) Failed to connect to 127.0.0.1 port 1: Couldn't connect to server\n"
    )
    said = curl.complaint(trace)
    assert said is not None
    assert said.endswith("server: Connection refused")


def test_the_last_complaint_of_ssh_is_no_debugging() -> None:
    log = (
        "debug1: kex: server->client cipher: aes128-ctr MAC: x compression: none\n"
        "ssh: connect to host 127.0.0.1 port 7700: Connection refused\r\nscp: Connection closed\n"
    )
    assert (
        ssh_server.complaint(log) == "ssh: connect to host 127.0.0.1 port 7700: Connection refused"
    )
    assert ssh_server.negotiated(log) == {"aes128-ctr"}
    assert ssh_server.complaint("debug1: nothing\n") is None


def test_the_server_shows_nothing_but_the_files() -> None:
    folder = PurePosixPath("/dev/shm/tm1")  # noqa: S108 - only a name
    text = configuration(
        folder,
        folder / "files",
        [("127.0.0.1", 7700), ("fd00::1", 7700)],
        tls=curl.Tls("1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        http2=True,
        pace_bytes_s=250_000,
    )
    assert "limit_rate 250000;" in text
    assert "listen 127.0.0.1:7700 ssl http2;" in text
    assert "listen [fd00::1]:7700 ssl http2;" in text
    assert "ssl_protocols TLSv1.2;" in text
    assert "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;" in text
    assert "root /dev/shm/tm1/files;" in text
    assert "gzip off;" in text


def test_a_certificate_is_good_for_its_addresses_only() -> None:
    shown, key = certify(["198.18.0.1", "fd00::1", "198.18.0.1"], datetime.now(UTC))
    (name,) = (
        x509.load_pem_x509_certificate(shown)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value,
    )
    assert [str(a) for a in name.get_values_for_type(x509.IPAddress)] == ["198.18.0.1", "fd00::1"]
    assert b"PRIVATE KEY" in key
    assert b"PRIVATE" not in shown


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"protocol": "scp", "connections": "one"}, "use sftp"),
        ({"tls_cipher": "RC4"}, "tls_cipher is 'RC4', TLS 1.3 has TLS_AES_256_GCM_SHA384"),
        ({"tls": "1.1"}, "1.2"),
        ({"size": "0 B"}, "greater than or equal to 1"),
        ({"corpus": "holiday"}, "video"),
    ],
)
def test_what_a_study_may_not_ask_for(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FileTransferParams.model_validate(values)


def test_the_limit_follows_from_size_link_and_pace() -> None:
    direction = Direction(8_000_000, 0, Queue("bytes", 65536))
    link = LinkSpec(direction, direction, 1)
    params = FileTransferParams.model_validate({"size": "1 MB"})
    assert params.limit_s(link, 5, 1) == 60 + 5 * 5 + 10 * 1
    assert params.limit_s(link, 5, 4) == 60 + 5 * 5 + 10 * 4
    assert params.limit_s(None, 5, 1) == 60 + 5 * 5 + 10 * 8
    paced = params.model_copy(update={"pace": 100_000})
    assert paced.limit_s(link, 1, 1) == 60 + 5 + 10 * 80
    assert params.model_copy(update={"limit": 7 * 10**9}).limit_s(link, 1, 1) == 7
