"""What Nebula says of itself when it fails."""

from tunnelmark.tunnels.nebula import last_words

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
