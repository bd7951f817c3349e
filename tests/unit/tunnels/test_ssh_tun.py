"""What ssh and sshd say of the keys that they exchange, at the start and again."""

from typing import Any

import pytest

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.daemon import Daemon, last_complaint
from tunnelmark.tunnels.ssh_tun.driver import SshTunParams, SshTunTunnel
from tunnelmark.tunnels.ssh_tun.log import last_words

SAID = """\
debug1: kex: algorithm: sntrup761x25519-sha512@openssh.com
debug1: kex: server->client cipher: {cipher} MAC: <implicit> compression: none
debug1: kex: client->server cipher: {cipher} MAC: <implicit> compression: none
"""
OURS = SAID.format(cipher="chacha20-poly1305@openssh.com")


@pytest.fixture
def up(site: Site) -> Any:
    tunnel = SshTunTunnel(SshTunParams.model_validate({}))
    process: Any = site.client.host.spawn(["ssh"], name="ssh-client-0")
    tunnel._daemons.append(
        Daemon("ssh_tun client of tunnel 0", site.client, "tm0", process, last_complaint)
    )
    return tunnel, process


@pytest.mark.parametrize("log", [OURS, OURS + OURS, "debug1: rekeying", "", "x" * 100_000])
def test_what_holds_or_is_too_far_back_is_no_failure(up: Any, log: str) -> None:
    tunnel, process = up
    process.log = log
    tunnel.check_agreed()


def test_keys_exchanged_anew_for_another_cipher_are_reported(up: Any) -> None:
    tunnel, process = up
    process.log = OURS + SAID.format(cipher="aes128-ctr")
    with pytest.raises(RefusedError, match=r"on client runs \S+ with \('aes128-ctr', '<implicit>'"):
        tunnel.check_agreed()


def test_what_sshd_says_of_its_own_end_is_not_why_it_ended() -> None:
    closed = "Connection closed by 198.18.0.1 port 40000 [preauth]"
    log = f"{closed}\ndebug1: do_cleanup [preauth]\ndebug1: audit_event: unhandled event 12\n"
    assert last_words(log) == closed


def test_a_gateway_must_have_agreed_with_each_client(up: Any) -> None:
    tunnel, process = up
    (gateway,) = tunnel._daemons
    process.log = OURS * 3
    assert tunnel._held(gateway, 3) == process.log.rstrip()
    with pytest.raises(RefusedError, match="runs client->server with None"):
        tunnel._held(gateway, 4)
    process.log = OURS + SAID.format(cipher="aes128-ctr") + OURS
    with pytest.raises(RefusedError, match=r"with \('aes128-ctr', '<implicit>'"):
        tunnel._held(gateway, 3)


@pytest.mark.parametrize(
    ("key_exchange", "listed", "reason"),
    [
        ("default", "", None),
        ("mlkem768x25519-sha256", "curve25519-sha256\nmlkem768x25519-sha256\n", None),
        (
            "mlkem768x25519-sha256",
            "curve25519-sha256\nsntrup761x25519-sha512@openssh.com\n",
            (
                "ssh has no key exchange mlkem768x25519-sha256 (of hybrid ones it has "
                "sntrup761x25519-sha512@openssh.com)"
            ),
        ),
        (
            "sntrup761x25519-sha512",
            "curve25519-sha256\n",
            (
                "ssh has no key exchange sntrup761x25519-sha512@openssh.com (of hybrid ones it has "
                "none)"
            ),
        ),
    ],
)
def test_a_key_exchange_that_ssh_does_not_list_is_reported(
    site: Site, key_exchange: str, listed: str, reason: str | None
) -> None:
    host: Any = site.client.host
    host.programs |= {"ssh", "sshd", "ip", "ping"}
    host.kernel.add("tun")
    host.answer = lambda argv, _stdin: (0, listed if argv == ("ssh", "-Q", "kex") else "")
    tunnel = SshTunTunnel(SshTunParams.model_validate({"key_exchange": key_exchange}))
    assert tunnel.unavailable(host) == reason
