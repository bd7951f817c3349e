"""What swanctl says is read strictly, whatever it says."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.strongswan.sas import LONGEST_TEXT, read_sas

# As strongSwan 5.9.8 wrote it.
EVENT = (
    "list-sa event {tm {uniqueid=1 version=2 state=ESTABLISHED local-host=198.18.0.1 "
    "local-port=4500 local-id=CN=tmab client remote-host=198.18.0.2 remote-port=4500 "
    "remote-id=CN=tmab server initiator=yes initiator-spi=2f6835d899a38943 "
    "responder-spi=317ea30570818ca5 nat-remote=yes nat-any=yes encr-alg=AES_CBC encr-keysize=128 "
    "integ-alg=HMAC_SHA2_256_128 prf-alg=PRF_HMAC_SHA2_256 dh-group=ECP_256 established=0 "
    "local-vips=[198.19.0.2] child-sas {esp0-1 {name=esp0 uniqueid=1 reqid=1 state=INSTALLED "
    "mode=TUNNEL protocol=ESP encap=yes spi-in=75c45e39 spi-out=3e6c2618 cpi-in=7a01 cpi-out=1b2c "
    "encr-alg=AES_GCM_16 encr-keysize=256 bytes-in=0 packets-in=0 install-time=0 "
    "local-ts=[198.19.0.2/32] remote-ts=[198.19.0.1/32 fd00::1/128]}}}}\n"
)
END = "list-sas reply {}\n"


def test_everything_that_is_enforced_is_read() -> None:
    (ike,) = read_sas(EVENT + END)
    assert (ike.name, ike.version, ike.state) == ("tm", 2, "ESTABLISHED")
    assert ike.suite == "AES_CBC/128/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/ECP_256"
    assert ike.local_addresses == ("198.19.0.2",)
    (sa,) = ike.children
    assert (sa.name, sa.state, sa.mode, sa.protocol) == ("esp0", "INSTALLED", "TUNNEL", "ESP")
    assert (sa.encryption, sa.key_bits, sa.integrity) == ("AES_GCM_16", 256, None)
    assert (sa.spi_in, sa.spi_out) == ("75c45e39", "3e6c2618")
    assert sa.udp_encapsulation
    assert sa.ipcomp
    assert sa.local == ("198.19.0.2/32",)
    assert sa.remote == ("198.19.0.1/32", "fd00::1/128")


def test_what_is_not_said_is_off() -> None:
    text = EVENT.replace(" encap=yes", "").replace(" cpi-out=1b2c", "")
    (sa,) = read_sas(text)[0].children
    assert not sa.udp_encapsulation
    assert not sa.ipcomp
    assert not sa.esn
    assert sa.group is None


def test_keys_of_their_own_and_long_numbers_are_read() -> None:
    text = EVENT.replace(" bytes-in=0", " dh-group=CURVE_25519 esn=1 bytes-in=0")
    (sa,) = read_sas(text)[0].children
    assert (sa.esn, sa.group) == (True, "CURVE_25519")


def test_ip_tfs_is_a_mode_of_its_own() -> None:
    # As strongSwan 6.1.0 wrote it.
    (sa,) = read_sas(EVENT.replace("mode=TUNNEL", "mode=IPTFS"))[0].children
    assert sa.mode == "IPTFS"


def test_a_selector_has_brackets_of_its_own() -> None:
    text = EVENT.replace("[198.19.0.2/32]", "[198.18.0.1/32[udp/l2f] 198.18.0.3/32[udp/1701]]")
    (sa,) = read_sas(text)[0].children
    assert sa.local == ("198.18.0.1/32[udp/l2f]", "198.18.0.3/32[udp/1701]")


def test_none_and_several() -> None:
    assert read_sas(END) == ()
    assert [ike.name for ike in read_sas(EVENT + EVENT.replace("{tm ", "{other ") + END)] == [
        "tm",
        "other",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("connecting failed\n", "a line that begins with 'connecting failed'"),
        (EVENT.replace("}}}}", "}"), "a section that does not end"),
        (EVENT.replace("version=2", "version=two"), "'two' is not a number"),
        (EVENT.replace(" mode=TUNNEL", ""), "no 'mode'"),
        (EVENT.replace("local-ts=[198.19.0.2/32]", "local-ts=x"), "no list 'local-ts'"),
        (EVENT.replace("state=INSTALLED", "state=INSTALLED state=REKEYED"), "'state' twice"),
        (EVENT.replace("[198.19.0.2]", "[198.19.0.256]"), "'198.19.0.256' is not an address"),
        ("list-sa event nothing\n", "no section but 'nothing'"),
        ("list-sa event {a {" + "b {" * 9 + "\n", "sections nested deeper than 8"),
        ("x" * (LONGEST_TEXT + 1), f"{LONGEST_TEXT + 1} characters, at most {LONGEST_TEXT}"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(TunnelError) as caught:
        read_sas(text)
    assert "swanctl --list-sas wrote what cannot be read: " in str(caught.value)
    assert words in str(caught.value)


@given(st.text(alphabet="{}[]= ab1\n", max_size=200))
def test_nothing_but_an_own_error_comes_out(text: str) -> None:
    with contextlib.suppress(TunnelError):
        read_sas("list-sa event {" + text)


@given(at=st.integers(0, len(EVENT)), text=st.sampled_from(["{", "}", "[", "]", "=", " ", "x"]))
def test_one_character_more_is_read_or_refused(at: int, text: str) -> None:
    with contextlib.suppress(TunnelError):
        read_sas(EVENT[:at] + text + EVENT[at:])
