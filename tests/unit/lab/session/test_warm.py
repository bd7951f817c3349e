"""What a warm-up sends: enough for each path, and never more than a slow gateway answers."""

import pytest

from tunnelmark.lab.session.warm import stream

_S_NS = 10**9
_WAIT_NS = 2 * 10**8


@pytest.mark.parametrize("paths", [1, 2, 3, 10, 50, 200])
def test_clients_share_a_rate_that_a_slow_gateway_answers(paths: int) -> None:
    sent = stream(paths, _WAIT_NS)
    assert sent.load == "each"
    assert paths * _S_NS / sent.gap <= 500
    assert sent.packet_count >= 10
    assert (sent.late, sent.drain) == (_WAIT_NS, _WAIT_NS)


def test_one_path_has_a_fifth_of_a_second() -> None:
    sent = stream(1, _WAIT_NS)
    assert (sent.gap, sent.packet_count) == (5_000_000, 40)
