"""Options of pppd as it reads them, and the bytes that PPP adds."""

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, get_args

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.ppp.log import PppReport
from tunnelmark.tunnels.ppp.pppd import PppEnd, PppSetup, framing, option_lines
from tunnelmark.tunnels.registry import tunnel_kinds

CLIENT = PppSetup("client", "tmx0c", 1400, PurePosixPath("/w/log"))
SERVER = PppSetup("server", "tmx0s", 1400, PurePosixPath("/w/log"))
ACCOUNT = pppd.PppAccount("tmx0", "0123")


class Files:
    """A host that keeps what is put."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        self.files[str(path)] = (data, mode)

    def get(self, path: PurePosixPath, *, limit_bytes: int = 0) -> bytes:
        data, _ = self.files.get(str(path), (b"", 0))
        if str(path) not in self.files or len(data) > limit_bytes:
            raise LabError(f"{path}: no such file")
        return data


def test_only_the_client_has_the_password_and_only_root_reads_it() -> None:
    assert "password 0123" in option_lines(CLIENT, ACCOUNT)
    assert not any("0123" in line for line in option_lines(SERVER, ACCOUNT))
    host: Any = Files()
    pppd.put_options(host, PurePosixPath("/w/options"), CLIENT, ACCOUNT)
    pppd.put_etc(host, PurePosixPath("/w/etc"), [ACCOUNT, pppd.PppAccount("tmx1", "4567")])
    assert {mode for _, mode in host.files.values()} == {0o600}
    assert host.files["/w/etc/options"][0] == b""
    assert host.files["/w/log"][0] == b""
    assert host.files["/w/etc/chap-secrets"][0] == (b'"tmx0" * "0123" *\n"tmx1" * "4567" *\n')


@pytest.mark.parametrize("setup", [CLIENT, SERVER])
def test_no_end_takes_the_other_for_its_own_echo(setup: PppSetup) -> None:
    # RFC 1661 section 6.4: two ends with the same magic number look like a line that is looped.
    assert "nomagic" in option_lines(setup, ACCOUNT)


def test_passwords_are_new_each_time() -> None:
    passwords = {pppd.new_account("a").password for _ in range(20)}
    assert len(passwords) == 20
    assert all(re.fullmatch("[0-9a-f]{32}", password) for password in passwords)


@pytest.mark.parametrize("mppe", get_args(pppd.Mppe))
def test_the_interface_gets_its_mtu_with_and_without_encryption(mppe: pppd.Mppe) -> None:
    lines = option_lines(replace(CLIENT, mppe=mppe), ACCOUNT)
    expected = 1400 if mppe == "none" else 1404
    assert f"mtu {expected}" in lines
    assert f"mru {expected}" in lines
    assert ("nomppe" in lines) is (mppe == "none")


def test_without_anything_to_compress_or_encrypt_there_is_no_ccp() -> None:
    assert "noccp" in option_lines(CLIENT, ACCOUNT)
    for setup in (replace(CLIENT, mppe="40"), replace(CLIENT, compression="bsd")):
        assert "noccp" not in option_lines(setup, ACCOUNT)


def test_a_server_takes_no_weaker_authentication() -> None:
    lines = option_lines(SERVER, ACCOUNT)
    assert {"auth", "require-mschap-v2", "refuse-pap", "refuse-chap", "refuse-mschap"} <= {*lines}


def test_both_ends_agree_on_who_has_which_ipv6_identifier() -> None:
    lines = [option_lines(replace(setup, ipv6=True), ACCOUNT) for setup in (CLIENT, SERVER)]
    assert "ipv6 ::2,::1" in lines[0]
    assert "ipv6 ::1,::2" in lines[1]
    assert "noipv6" in option_lines(CLIENT, ACCOUNT)


def test_a_program_gets_its_own_etc() -> None:
    argv = pppd.in_own_etc(PurePosixPath("/w/etc"), ["pppd", "file", "/w/o"])
    assert argv[:4] == ["unshare", "--mount", "--propagation", "private"]
    assert argv[-4:] == ["/w/etc", "pppd", "file", "/w/o"]


@pytest.mark.parametrize(
    ("report", "sizes"),
    [
        (PppReport(), [2, 2]),
        (PppReport(sends_without_address=True, sends_short_protocol=True), [1]),
        # Seen on the wire: 128 bytes of IP in 133 bytes of PPP.
        (
            PppReport(sends_without_address=True, sends_short_protocol=True, mppe="128-stateless"),
            [1, 2, 2],
        ),
    ],
)
def test_the_bytes_before_a_packet(report: PppReport, sizes: list[int]) -> None:
    assert [layer.bytes for layer in framing(report).layers()] == sizes


def test_an_end_that_has_not_begun_has_an_empty_log() -> None:
    host: Any = Files()
    end = PppEnd(host, CLIENT)
    assert end.log() == ""
    host.put(CLIENT.log, b"Using interface tmx0c\n\xff\n")
    assert end.report().interface == "tmx0c"


@pytest.mark.parametrize("kind", ["pptp", "l2tp_ipsec", "sstp"])
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_pppd_that_outlives_its_attempt_writes_into_a_log_that_nobody_reads(
    site: Site, kind: str, side: str
) -> None:
    def log() -> object:
        tunnel: Any = make(tunnel_kinds(), DriverSpec(kind, kind, {}))
        return tunnel._setup(site, side, 0).log

    logs = {log() for _ in range(3)}
    assert len(logs) == 3
