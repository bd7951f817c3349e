"""Benchmarks of ciphers: whose code a tunnel is calibrated by, and what each program says."""

from collections.abc import Mapping, Sequence

import pytest

from tunnelmark.devices.registry import DEVICES, TUNNEL_CIPHER
from tunnelmark.hosts.cgroup import Quota
from tunnelmark.lab.benchmarks import (
    Goal,
    goal_of,
    measure,
    need_of,
    parse_dd,
    parse_go,
    parse_speed,
)
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed
from tunnelmark.model.tunnel import CipherLibrary, Encryption

_GO_SAYS = b"""\
gocryptfs 2.3; go-fuse 2.1.0+git20220822.58a7e14; 2023-04-09 go1.19.8 linux/amd64
cpu: AMD EPYC; no AES acceleration
AES-GCM-256-OpenSSL       \t1385.32 MB/s\t(selected in auto mode)
AES-GCM-256-Go            \t  90.35 MB/s
AES-SIV-512-Go            \t  59.01 MB/s
XChaCha20-Poly1305-OpenSSL\t1378.47 MB/s
XChaCha20-Poly1305-Go     \t1073.38 MB/s\t(selected in auto mode)
"""


@pytest.mark.parametrize(
    ("device", "calibrate", "encryption", "goal"),
    [
        ("pi-3", TUNNEL_CIPHER, ("AES-256-GCM", "OpenSSL"), ("AES-256-GCM", "OpenSSL")),
        ("pi-3", TUNNEL_CIPHER, ("CHACHA20-POLY1305", "Go"), ("ChaCha20-Poly1305", "Go")),
        ("pi-3", TUNNEL_CIPHER, ("AES-256-GCM", "GnuTLS"), ("AES-256-GCM", "GnuTLS")),
        ("pi-b", TUNNEL_CIPHER, ("3DES-SHA1", "OpenSSL"), ("DES-EDE3-CBC", "OpenSSL")),
        # Of ring there is no benchmark, of an unknown program no library.
        ("pi-3", TUNNEL_CIPHER, ("CHACHA20-POLY1305", "ring"), ("ChaCha20-Poly1305", "OpenSSL")),
        ("pi-3", TUNNEL_CIPHER, ("AES-256-GCM", None), ("AES-256-GCM", "OpenSSL")),
        # A cipher of which the device, or anybody, has no figure.
        ("pi-5", TUNNEL_CIPHER, ("BF-CBC", "OpenSSL"), ("AES-128-CBC", "OpenSSL")),
        ("pi-3", TUNNEL_CIPHER, ("MPPE-128", None), ("AES-128-CBC", "OpenSSL")),
        ("pi-3", TUNNEL_CIPHER, ("system calls", "Go"), ("AES-128-CBC", "OpenSSL")),
        ("pi-3", TUNNEL_CIPHER, (None, None), ("AES-128-CBC", "OpenSSL")),
        # What a study names itself is OpenSSL's, as the device's figures are.
        ("pi-3", "AES-256-CBC", ("CHACHA20-POLY1305", "Go"), ("AES-256-CBC", "OpenSSL")),
    ],
)
def test_a_limit_meets_the_cipher_of_the_tunnel_in_its_own_library(
    device: str,
    calibrate: str,
    encryption: tuple[str | None, CipherLibrary | None],
    goal: tuple[str, CipherLibrary],
) -> None:
    assert goal_of(DEVICES[device], calibrate, Encryption(*encryption)) == Goal(*goal)


def test_only_go_needs_a_program_of_its_own() -> None:
    assert need_of(Goal("AES-256-GCM")).programs == {}
    assert need_of(Goal("AES-256-GCM", "GnuTLS")).programs == {}
    assert need_of(Goal("AES-256-GCM", "Go")).programs == {"gocryptfs": "gocryptfs"}


def test_the_line_of_the_library_is_read() -> None:
    done = Completed(("gocryptfs", "-speed"), 0, _GO_SAYS, b"")
    assert parse_go(done, "AES-GCM-256-Go") == 90.35
    assert parse_go(done, "XChaCha20-Poly1305-Go") == 1073.38
    with pytest.raises(LabError, match=r"gocryptfs -speed: no speed"):
        parse_go(done, "AES-GCM-256-Rust")
    with pytest.raises(LabError, match=r"gocryptfs -speed: no speed: killed"):
        parse_go(Completed(("gocryptfs", "-speed"), 1, _GO_SAYS, b"killed\n"), "AES-GCM-256-Go")


def test_a_benchmark_that_takes_a_second_runs_so_often_that_many_periods_pass() -> None:
    rates = iter((20.0, 30.0))

    def bench(argv: Sequence[str], _environment: Mapping[str, str], _limit_s: float) -> Completed:
        line = f"AES-GCM-256-Go \t{next(rates):.2f} MB/s\n"
        return Completed(tuple(argv), 0, line.encode(), b"")

    # 50 periods of 40 ms are two seconds; as many bytes again take 1/20 and 1/30 s.
    found = measure(Goal("AES-256-GCM", "Go"), bench, {}, quota=Quota(1000, 40_000), wanted=25.0)
    assert found == pytest.approx(24.0)
    assert next(rates, None) is None


def test_gnutls_is_asked_for_the_same_time_as_openssl() -> None:
    asked: list[Sequence[str]] = []

    def bench(argv: Sequence[str], _environment: Mapping[str, str], _limit_s: float) -> Completed:
        asked.append(argv)
        return Completed(tuple(argv), 0, b"+F:1:CHACHA20-POLY1305:5000000.00\n", b"")

    goal = Goal("ChaCha20-Poly1305", "GnuTLS")
    assert measure(goal, bench, {}, quota=Quota(1000, 40_000)) == 5.0
    assert asked[0][-2:] == ["CHACHA20-POLY1305", "2"]


@pytest.mark.parametrize(
    ("status", "text"), [(0, b""), (1, b"+F:25:x:1.0\n"), (0, b"+F:25:x:0.00\n"), (0, b"+F:a:b\n")]
)
def test_what_is_no_speed_is_refused(status: int, text: bytes) -> None:
    with pytest.raises(LabError, match="openssl speed: no speed"):
        parse_speed(Completed(("openssl", "speed"), status, text, b""))


def test_both_forms_of_what_dd_says_are_read() -> None:
    old = b"500000 bytes (500 kB, 488 KiB) copied, 0.125 s, 4.0 MB/s\n"
    assert parse_dd(Completed(("dd",), 0, b"", old)) == pytest.approx(4e6)
    tiny = b"1 byte copied, 2.5e-05 s, 40.0 kB/s\n"
    assert parse_dd(Completed(("dd",), 0, b"", tiny)) == pytest.approx(4e4)
    with pytest.raises(LabError, match="dd: no rate: dd: cannot open"):
        parse_dd(Completed(("dd",), 1, b"", b"dd: cannot open\n"))
