"""What OpenVPN says of a group that its TLS library lacks, in its own words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.openvpn import OpenVpnTunnel
from tunnelmark.tunnels.openvpn.groups import no_group
from tunnelmark.tunnels.openvpn.params import OpenVpnParams

NOW = datetime(2026, 11, 22, tzinfo=UTC)
SAID = """\
2026-11-22 23:17:01 OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)] [LZO] [LZ4] [EPOLL]
2026-11-22 23:17:01 library versions: OpenSSL 3.0.19 27 Jan 2026, LZO 2.10
2026-11-22 23:17:01 OpenSSL: error:0A080106:SSL routines::passed invalid argument:group 'X' cannot
"""
LACKING = SAID + "2026-11-22 23:17:01 Failed to set allowed TLS group list: X25519MLKEM768\n"
REASON = "OpenVPN 2.6.14 with OpenSSL 3.0.19 27 Jan 2026, LZO 2.10 has no TLS group X25519MLKEM768"


@pytest.mark.parametrize(("said", "reason"), [(LACKING, REASON), (SAID, None)])
def test_a_group_that_is_not_there_is_reported(site: Site, said: str, reason: str | None) -> None:
    host: Any = site.client.host
    host.answer = lambda _argv, _stdin: (1, said)
    assert no_group(host, "X25519MLKEM768", NOW) == reason
    ((argv, config),) = host.ran
    assert argv == ("openvpn", "--config", "stdin")
    lines = config.decode().splitlines()
    assert "tls-groups X25519MLKEM768" in lines
    assert "local 127.0.0.1" in lines
    assert not any(line.startswith("remote") for line in lines)


def test_one_that_goes_on_has_the_group(site: Site) -> None:
    def late(_argv: Any, _stdin: Any) -> tuple[int, str]:
        raise LabError("openvpn did not end within 1 s")

    host: Any = site.client.host
    host.answer = late
    assert no_group(host, "X25519", NOW) is None


def test_a_study_that_names_none_asks_nothing(site: Site) -> None:
    host: Any = site.client.host
    host.programs |= {"openvpn", "ip", "ping"}
    host.kernel.add("tun")
    host.answer = lambda _argv, _stdin: (1, LACKING)
    assert OpenVpnTunnel(OpenVpnParams.model_validate({})).unavailable(host) is None
    assert host.ran == []
    params = OpenVpnParams.model_validate({"tls_groups": "X25519MLKEM768"})
    assert OpenVpnTunnel(params).unavailable(host) == REASON


def test_the_group_is_a_column_only_where_it_is_named() -> None:
    assert "tls_groups" not in OpenVpnParams.model_validate({}).columns()
    named = OpenVpnParams.model_validate({"tls_groups": "X25519"})
    assert named.columns()["tls_groups"] == "X25519"


def test_a_static_key_has_no_group() -> None:
    static = {"key_exchange": "static", "cipher": "AES-256-CBC", "tls_groups": "X25519"}
    with pytest.raises(ValueError, match="key_exchange static has no TLS"):
        OpenVpnParams.model_validate(static)
