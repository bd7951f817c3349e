"""Versions of programs say the same whenever the programs are the same."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tunnelmark.lab.environment import describe
from tunnelmark.lab.versions import said_version, versions
from tunnelmark.store.manifest import environment_key


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (0, "fastd v22\n", "fastd v22"),
        (
            0,
            "OpenVPN 2.6.14 x86_64-pc-linux-gnu\nlibrary versions: OpenSSL 3.0.19\n",
            "OpenVPN 2.6.14",
        ),
        (0, "edge: unrecognized option\nWelcome to n2n v.1.3.2 for unknown\n", "Welcome to n2n"),
        # xl2tpd ends with 1 all the same.
        (1, "\nxl2tpd version:  xl2tpd-1.3.18\n", "xl2tpd version:  xl2tpd-1.3.18"),
        (1, '2026/11/28 17:21:31 socat[2141] E unknown option "--version"\n', ""),
        (255, "unknown option -- -\nusage: ssh [-b bind_address] 1.2\n", ""),
        (1, "Error: unknown flag: --version\nUsage:\n  listen on 127.0.0.1\n", ""),
        (0, "Built at 07:52:27 with 1.2\n", ""),
        (0, "one\ntwo\nthree\n4.0\n", ""),
        (0, "1." * 500, "1." * 100),
        (0, "", ""),
    ],
)
def test_an_answer_without_a_version_is_none(status: int, text: str, said: str) -> None:
    found = said_version(status, text)
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert len(found) <= 200


def test_what_says_nothing_is_known_by_its_digest_and_what_is_not_here_is_left_out(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\necho now it is $(date +%H:%M:%S.%N), process $$\n")
    own.chmod(0o755)
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    found = versions([str(own), str(tmp_path / "none"), "tm-no-such-program"])
    assert found == {str(own): f"SHA-256 {digest[:16]}"}


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="needs dpkg")
def test_what_is_of_a_package_has_its_version() -> None:
    # An option that neither knows.
    found = versions(["ping", "nsenter"])
    assert found["ping"].startswith("iputils-ping ")
    assert found["ping"].endswith(" (package)")
    assert found["nsenter"].startswith("nsenter from util-linux ")


def test_the_same_programs_are_the_same_environment() -> None:
    """socat's answer split a result that was resumed on the same computer into two environments."""
    programs = ("bash", "openvpn", "ping", "sing-box", "socat", "ssh", "sshd", "stunnel", "vtund")
    first = describe("", programs)
    assert environment_key(first) == environment_key(describe("", programs))
    assert "bash" in first
    assert all(any(c.isdigit() for c in first[name]) for name in programs if name in first)
