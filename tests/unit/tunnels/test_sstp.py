"""Parameters, sizes and logs of SSTP, without a daemon."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tunnelmark.model.overhead import datagram, fragmentation_point
from tunnelmark.model.topology import gateway_ipv4
from tunnelmark.model.tunnel import Negotiated, Site
from tunnelmark.tunnels.sstp import softether
from tunnelmark.tunnels.sstp.driver import SstpParams, SstpTunnel
from tunnelmark.tunnels.sstp.log import ServerReport, last_words, read_server_log, version

AGREED = Negotiated(cipher=None, version="1", implementation="pppd", mtu_bytes=1400, data_path=None)
SERVER = """\
listening on 198.18.0.2 port 443
call 0 from 198.18.0.1 port 48606
call 0: TLSv1.3 TLS_AES_256_GCM_SHA384
call 0: pppd started
call 1 from 198.18.0.1 port 48608
call 1: [SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca, an error
call 0: crypto binding to nonce and certificate agreed
"""


@pytest.mark.parametrize(
    ("tls", "outer"),
    [
        # IPv4 20, TCP 32, TLS record 5, SSTP 4, PPP 1, 1028 inside, then what TLS adds behind.
        ("1.3", 1107),
        ("1.2", 1114),
    ],
)
def test_sizes_as_they_were_seen(tls: str, outer: int) -> None:
    wrap = SstpTunnel(SstpParams.model_validate({"tls": tls})).encapsulation(AGREED)
    assert datagram(1000, link_mtu_bytes=1500, encapsulation=wrap).outer_packet_bytes == (outer,)
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=wrap) == 1372


@pytest.mark.parametrize(("tls", "outer"), [("1.3", 1110), ("1.2", 1117)])
def test_softether_s_ppp_has_four_bytes(tls: str, outer: int) -> None:
    params = SstpParams.model_validate({"tls": tls, "server": "softether"})
    wrap = SstpTunnel(params).encapsulation(AGREED)
    assert datagram(1000, link_mtu_bytes=1500, encapsulation=wrap).outer_packet_bytes == (outer,)


def test_the_server_is_a_column_only_where_it_is_another() -> None:
    assert "server" not in SstpParams.model_validate({}).columns()
    assert SstpParams.model_validate({"server": "softether"}).columns()["server"] == "softether"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"inner": "ipv6"}, "inner is ipv6: with server softether it must be ipv4"),
        ({"compression": "bsd"}, "compression is bsd: with server softether it must be none"),
        ({"clients": 2}, "clients is 2: with server softether leave it out"),
        ({"mtu_bytes": 1501}, "mtu_bytes is 1501: SoftEther's PPP carries at most 1500"),
    ],
)
def test_what_softether_s_ppp_has_not_is_refused(params: dict[str, Any], words: str) -> None:
    SstpParams.model_validate(params)
    with pytest.raises(ValidationError, match=words):
        SstpParams.model_validate({"server": "softether"} | params)


def test_debian_s_softether_is_refused_before_anything_starts(hosts: Any) -> None:
    tunnel = SstpTunnel(SstpParams.model_validate({"server": "softether"}))
    reason = tunnel.unavailable(hosts[0]) or ""
    assert reason.startswith(
        "SoftEther VPN 5.01 Build 9674, which Debian has, answers no SSTP call"
    )
    assert 'program = { vpnserver = "' in reason


def test_the_client_of_a_hub_asks_for_its_address_and_for_that_of_its_dhcp(site: Site) -> None:
    tunnel = SstpTunnel(SstpParams.model_validate({"server": "softether", "count": 2}))
    assert "198.19.0.5:198.19.0.7" in tunnel._setup(site, "client", 1).more
    assert softether.account(1).name == "tunnelmark@t1"


def test_the_server_s_log_is_read_by_call() -> None:
    assert read_server_log(SERVER, 0) == ServerReport("TLSv1.3", "TLS_AES_256_GCM_SHA384", True)
    assert read_server_log(SERVER, 1) == ServerReport()


def test_the_last_words_are_those_of_the_call() -> None:
    assert last_words("Modem hangup\n", SERVER, 1).startswith("call 1: [SSL: TLSV1_ALERT_UNKNOWN")
    assert last_words("Modem hangup\n", SERVER, 0) == "Modem hangup"
    assert last_words("", "Traceback\nOSError: no such file\n", None) == "OSError: no such file"


def test_each_client_of_a_gateway_trusts_the_authority_from_its_own_host(
    site: Site, hosts: Any
) -> None:
    second = replace(site.client, host=hosts[1], ipv4="198.18.0.3")
    gateway = replace(site, clients=(site.client, second), inner_ipv4=gateway_ipv4)
    driver = SstpTunnel(SstpParams.model_validate({"clients": 2}))
    more = "\n".join(driver._setup(gateway, "client", 1).more)
    assert f"--ca-cert {driver._folder(hosts[1], 'ca.crt')} " in more
    assert driver._folder(hosts[1], "ca.crt").is_relative_to(hosts[1].work_dir)
    assert "198.19.0.3:198.19.0.1" in more
    assert "198.19.0.1:198.19.0.3" in driver._setup(gateway, "server", 1).more


def test_the_version_of_the_client() -> None:
    assert version("sstp-client version 1.0.18\n") == "1.0.18"
    assert version("") == "of unknown version"


@given(st.text(max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    read_server_log(f"{text}\ncall 0: {text}", 0)
    assert len(last_words(text, f"call 0: {text} error", 0)) <= 300
