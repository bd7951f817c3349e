"""What pluto and the kernel say of the associations is read strictly."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.esp.suites import Agreement, check_pair
from tunnelmark.tunnels.libreswan.pluto import last_words
from tunnelmark.tunnels.libreswan.sas import LONGEST_TEXT, read_sas

# As Libreswan 4.10 wrote it.
STATUS = """\
000 using kernel interface: xfrm
000 interface va UDP 10.9.0.1:4500
000 Connection list:
000 "esp0": 198.18.0.1/32===10.9.0.1[@client.x]...10.9.0.2[@server.x]===198.18.0.2/32; erouted; \
eroute owner: #2
000 "esp0":     oriented; my_ip=unset; their_ip=unset; my_updown=<disabled>;
000 "esp0":   policy: IKEv2+PSK+ENCRYPT+TUNNEL+DONT_REKEY+UP+IKE_FRAG_ALLOW+ESN_YES;
000 "esp0":   newest IKE SA: #1; newest IPsec SA: #2; conn serial: $1;
000 "esp0":   IKE algorithms: AES_CBC_128-HMAC_SHA2_256-DH19
000 "esp0":   IKEv2 algorithm newest: AES_CBC_128-HMAC_SHA2_256-DH19
000 "esp0":   ESP algorithms: 3DES_CBC-HMAC_SHA1_96
000 "esp0":   ESP algorithm newest: 3DES_CBC_192-HMAC_SHA1_96; pfsgroup=<N/A>
000 State list:
000 #1: "esp0":4500 STATE_V2_ESTABLISHED_IKE_SA (established IKE SA); EXPIRE in 86398s; \
newest; idle;
000 #2: "esp0":4500 STATE_V2_ESTABLISHED_CHILD_SA (established Child SA); EXPIRE in 86398s; \
newest; eroute owner; IKE SA #1; idle;
000 #2: "esp0" esp.840568e@10.9.0.2 esp.31a7c6ee@10.9.0.1 tun.0@10.9.0.2 tun.0@10.9.0.1 \
Traffic: ESPin=0B ESPout=0B ESPmax=2^63B\x20
"""
KERNEL = """\
src 10.9.0.2 dst 10.9.0.1
	proto esp spi 0x31a7c6ee reqid 16389 mode tunnel
	replay-window 0 flag af-unspec esn
	output-mark 0x1/0xffffffff
	auth-trunc hmac(sha1) <<Keys hidden>> 96
	enc cbc(des3_ede) <<Keys hidden>>
	encap type espinudp sport 4500 dport 4500 addr 0.0.0.0
	anti-replay esn context:
	\x20seq-hi 0x0, seq 0x0, oseq-hi 0x0, oseq 0x0
	\x20replay_window 128, bitmap-length 4
	\x2000000000 00000000 00000000 00000000\x20
	if_id 0x1
src 10.9.0.1 dst 10.9.0.2
	proto esp spi 0x0840568e reqid 16389 mode tunnel
	replay-window 0 flag af-unspec esn
	encap type espinudp sport 4500 dport 4500 addr 0.0.0.0
	if_id 0x1
"""
WANTED = Agreement(
    ike_version=2,
    mode="tunnel",
    suite="3DES-SHA1",
    udp_encapsulation=True,
    ipcomp=False,
    esn=True,
)


def test_everything_that_is_enforced_is_read() -> None:
    (ike,) = read_sas(STATUS, KERNEL)
    assert (ike.name, ike.version, ike.state) == ("esp0", 2, "ESTABLISHED")
    assert ike.suite == "AES_CBC_128/HMAC_SHA2_256/ECP_256"
    (sa,) = ike.children
    assert (sa.name, sa.state, sa.mode, sa.protocol) == ("esp0", "INSTALLED", "TUNNEL", "ESP")
    assert (sa.encryption, sa.key_bits, sa.integrity) == ("3DES_CBC", 192, "HMAC_SHA1_96")
    assert (sa.spi_in, sa.spi_out) == ("31a7c6ee", "0840568e")
    assert (sa.udp_encapsulation, sa.esn, sa.ipcomp, sa.group) == (True, True, False, None)
    assert (sa.local, sa.remote) == (("198.18.0.1/32",), ("198.18.0.2/32",))
    assert WANTED.faults(ike, sa) == []


@pytest.mark.parametrize(
    ("names", "cipher"),
    [
        ("AES_GCM_16_256-NONE", ("AES_GCM_16", 256, None)),
        ("AES_CBC_256-HMAC_SHA2_256_128", ("AES_CBC", 256, "HMAC_SHA2_256_128")),
        ("CHACHA20_POLY1305_256-NONE", ("CHACHA20_POLY1305", 256, None)),
        ("NULL_000-HMAC_SHA1_96", ("NULL", 0, "HMAC_SHA1_96")),
    ],
)
def test_ciphers_have_the_names_of_the_registry(
    names: str, cipher: tuple[str, int, str | None]
) -> None:
    (ike,) = read_sas(STATUS.replace("3DES_CBC_192-HMAC_SHA1_96", names), KERNEL)
    (sa,) = ike.children
    assert (sa.encryption, sa.key_bits, sa.integrity) == cipher


def test_what_is_in_one_direction_only_is_not_installed() -> None:
    one = KERNEL[: KERNEL.index("src 10.9.0.1")]
    ((sa,),) = (ike.children for ike in read_sas(STATUS, one))
    assert sa.state == "ESTABLISHED_CHILD_SA"
    half = KERNEL.replace("flag af-unspec esn", "flag af-unspec", 1)
    ((sa,),) = (ike.children for ike in read_sas(STATUS, half))
    assert not sa.esn
    plain = KERNEL.replace("\tencap type espinudp sport 4500 dport 4500 addr 0.0.0.0\n", "", 1)
    ((sa,),) = (ike.children for ike in read_sas(STATUS, plain))
    assert not sa.udp_encapsulation


def test_an_association_may_hang_on_the_one_of_another_connection() -> None:
    # So on a responder with several connections of one peer: it names the first that fits.
    other = STATUS.replace('#1: "esp0"', '#1: "esp1"').replace(
        '"esp0":   IKEv2 algorithm newest', '"esp1":   IKEv2 algorithm newest'
    )
    (ike,) = read_sas(other, KERNEL)
    assert (ike.name, ike.suite) == ("esp1", "AES_CBC_128/HMAC_SHA2_256/ECP_256")
    assert [child.name for child in ike.children] == ["esp0"]


def test_addresses_of_ipv6_are_written_otherwise() -> None:
    six = STATUS.replace("198.18.0.1/32", "fd00::1/128").replace("198.18.0.2/32", "fd00::2/128")
    six = six.replace("10.9.0.1", "fd09::1").replace("10.9.0.2", "fd09::2")
    (ike,) = read_sas(six.replace("esp.", "esp:").replace("tun.", "tun:"), KERNEL)
    (sa,) = ike.children
    assert (sa.local, sa.remote) == (("fd00::1/128",), ("fd00::2/128",))


def test_version_5_writes_the_same_with_less_around_it() -> None:
    five = STATUS.replace("000 ", "").replace("STATE_V2_", "")
    five = five.replace("; erouted; eroute owner: #2", "; routed-tunnel; my_ip=unset;")
    assert read_sas(five, KERNEL) == read_sas(STATUS, KERNEL)


def test_both_ends_are_held_to_each_other() -> None:
    (ours,) = read_sas(STATUS, KERNEL)
    (sa,) = ours.children
    theirs = replace(
        ours,
        children=(
            replace(sa, spi_in=sa.spi_out, spi_out=sa.spi_in, local=sa.remote, remote=sa.local),
        ),
    )
    assert check_pair(WANTED, "esp0", ("client", [ours]), ("server", [theirs])) == (ours, sa)
    with pytest.raises(TunnelError, match=r"SPI 31a7c6ee in.*is not that of the server"):
        check_pair(WANTED, "esp0", ("client", [ours]), ("server", [ours]))


def test_none() -> None:
    assert read_sas("000 using kernel interface: xfrm\n", "") == ()


@pytest.mark.parametrize(
    ("status", "kernel", "words"),
    [
        (STATUS.replace("esp.840568e", "esp.x"), KERNEL, "no indices, selectors or algorithms"),
        (STATUS.replace("===198.18.0.2/32", ""), KERNEL, "no indices, selectors or algorithms"),
        (STATUS, KERNEL.replace("proto esp", "proto ah"), "an association of the kernel that"),
        (STATUS, KERNEL.replace("mode tunnel", "mode beet", 1), "two modes of esp0: BEET, TUNNEL"),
        (STATUS + " " * LONGEST_TEXT, KERNEL, "at most 1048576 are read"),
    ],
)
def test_what_is_not_as_they_write_it_is_named(status: str, kernel: str, words: str) -> None:
    with pytest.raises(TunnelError, match=words):
        read_sas(status, kernel)


@given(st.text(), st.integers(0, len(STATUS)), st.integers(0, len(KERNEL)))
def test_any_text_is_read_or_refused(text: str, at: int, also: int) -> None:
    with contextlib.suppress(TunnelError):
        read_sas(STATUS[:at] + text + STATUS[at:], KERNEL[:also] + text + KERNEL[also:])


def test_the_line_of_a_log_that_tells_most_is_found() -> None:
    log = """\
seccomp security not supported
netlink_expire got message with length 116 < 232 bytes; ignore message
"esp0" #1: initiating IKEv2 connection
"esp0" #1: IKE SA authentication request rejected by peer: AUTHENTICATION_FAILED
"esp0" #1: encountered fatal error in state STATE_V2_PARENT_I2
"esp0" #1: state transition 'IKE_AUTH' failed
"""
    assert last_words(log).endswith("rejected by peer: AUTHENTICATION_FAILED")
    assert last_words("Nov 25 09:06:19.5: no connection") == "no connection"
    assert last_words('"esp0": added IKEv2 connection\n') == '"esp0": added IKEv2 connection'
    assert last_words("") == "nothing in its log"
