"""What Nebula says of itself when it fails."""

import pytest

from tunnelmark.tunnels.nebula import _ACTIVE, _HANDSHAKE, last_words

INFO = 'time="2026-11-21T09:53:19Z" level=info msg="Handshake message sent" vpnIp=198.19.0.1\n'
ERROR = (
    'time="2026-11-21T09:53:22Z" level=error msg="Failed to call noise.ReadMessage" '
    'error="chacha20poly1305: message authentication failed" handshake="map[stage:2]"\n'
)


def test_the_last_complaint_is_reported_without_time_and_places() -> None:
    assert last_words(INFO + ERROR + INFO) == (
        "Failed to call noise.ReadMessage: chacha20poly1305: message authentication failed"
    )


def test_without_a_complaint_it_is_the_last_line() -> None:
    assert last_words(INFO) == "Handshake message sent"
    assert last_words("") == "nothing in its log"
    assert last_words("nebula: not found\n") == "nebula: not found"
    assert last_words('level=fatal msg=Goodbye error="x"') == "Goodbye: x"


@pytest.mark.parametrize(
    ("active", "handshake", "version"),
    [
        (
            'msg="Nebula interface is active" build=1.6.1 interface=tm0 network=198.19.0.2/30',
            (
                'msg="Handshake message received" certName=server-0 durationNs=42163700 '
                'fingerprint=c4f3 handshake="map[stage:2 style:ix_psk0]"'
            ),
            "1.6.1",
        ),
        (
            (
                'msg="Nebula interface is active" interface=tm0 networks=[198.19.0.1/30] '
                "build=1.11.0 udpAddr=198.18.0.2:4242 boringcrypto=false"
            ),
            (
                'msg="Handshake message received" vpnAddrs=[198.19.0.1] from=198.18.0.2:4242 '
                "certName=server-0 certVersion=2 fingerprint=c4f3"
            ),
            "1.11.0",
        ),
    ],
    ids=["1.6", "1.11"],
)
def test_version_and_peer_are_read_wherever_they_stand_in_the_line(
    active: str, handshake: str, version: str
) -> None:
    log = f"time=x level=info {active}\ntime=x level=info {handshake}\n"
    assert [match.group(1) for match in _ACTIVE.finditer(log)] == [version]
    assert _HANDSHAKE.findall(log) == ["server-0"]
