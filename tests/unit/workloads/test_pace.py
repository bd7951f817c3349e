"""How programs keep to a pace: beside what was seen on a line of 8 Mbit/s with a delay of 20 ms."""

import pytest

from tunnelmark.workloads import curl, http_lengths, pace, sftp_lengths, ssh_lengths
from tunnelmark.workloads.file_transfer_params import FileTransferParams

MS = 1_000_000
SSH_BIT_S = 1000 * pace.SSH_KBIT
"""``-l 1000``."""
BYTES_S = 125_000


def in_ms(due_ns: tuple[int, ...]) -> list[int]:
    return [one // MS for one in due_ns]


def test_curl_sends_64_kib_and_waits_as_long_as_that_may_take() -> None:
    found = pace.by_curl(300_000, BYTES_S)
    # As captured, from the start of the transfer.
    assert found.pieces == (65_536, 65_536, 65_536, 65_536, 37_856)
    assert in_ms(found.due_ns) == [0, 524, 1_048, 1_572, 2_097]
    # Also where that is more than it may send in a second.
    assert in_ms(pace.by_curl(200_000, 12_500).due_ns) == [0, 5_242, 10_485, 15_728]


def test_nginx_sends_a_buffer_and_then_two_each_time_with_tls() -> None:
    found = http_lengths.fetch(
        "https://198.18.0.2:7700/small-001",
        300_000,
        tls=curl.Tls("1.3", None),
        close=False,
        pace_bytes_s=BYTES_S,
    )
    # The first one as captured without two tickets of 79 bytes.
    assert found.reply == (32_970 - 158, 65_624, 65_624, 65_624, 65_624, 5_368)
    # 265, 790, 1,314, 1,839 and 2,364 ms behind the first byte.
    assert in_ms(found.reply_due_ns) == [0, 262, 786, 1_310, 1_835, 2_359]
    slow = pace.by_nginx(60_256, 12_500, tls=True)
    assert slow.pieces == (12_500,) * 4 + (10_256,)
    assert in_ms(slow.due_ns) == [0, 1_000, 2_000, 3_000, 4_000]


def test_nginx_without_tls_sends_what_it_may_in_a_second() -> None:
    # Captured: 127,234 bytes within 700 ms, then 122,880 at 1,018 ms, and the rest at 2,002 ms.
    found = pace.by_nginx(300_258, BYTES_S, tls=False)
    assert found.pieces == (125_000, 125_000, 50_258)
    assert in_ms(found.due_ns) == [0, 1_000, 2_000]


def test_scp_sends_16_kib_and_waits() -> None:
    *_, moved, _ = ssh_lengths.leave("file-0001.bin", 300_000, "CHACHA20-POLY1305", SSH_BIT_S)
    assert moved.request == (*[16_420] * 18, 5_124, 36)
    # Two at once, the third 256 ms behind them, and one each 128 ms; the last byte goes with the
    # rest, at 2,306 ms.
    assert in_ms(moved.request_due_ns)[:4] == [0, 0, 256, 384]
    assert in_ms(moved.request_due_ns)[-2:] == [2_304, 2_304]
    # Where 16 KiB take less than 10 ms it sends more at a time.
    fast = pace.by_scp(1 << 20, 50_000_000)
    assert len(set(fast.due_ns)) == 16


def test_scp_that_reads_is_done_when_it_may_have_read_all() -> None:
    *_, moved, end = ssh_lengths.fetch("file-0001.bin", 300_000, "CHACHA20-POLY1305", SSH_BIT_S)
    assert moved.reply_due_ns == (0,)
    # Captured: 2,356 ms behind the first byte.
    assert end.due_ns // MS == 2_343
    *_, moved, _ = ssh_lengths.fetch("file-0001.bin", 3 << 20, "CHACHA20-POLY1305", SSH_BIT_S)
    assert len(moved.reply) == 1 + 11
    assert in_ms(moved.reply_due_ns)[:3] == [0, 768, 1_536]


@pytest.mark.parametrize(
    ("download", "seen"),
    [
        # Writes, and the end of the file.
        (False, [2_042, 4_082, 6_122, 7_815]),
        # Reads behind the first block, and the end.
        (True, [2_042, 7_832]),
    ],
)
def test_sftp_waits_for_each_block(download: bool, seen: list[int]) -> None:
    files = [("file-0001.bin", 1_000_000)]
    found = sftp_lengths.session(
        files, "CHACHA20-POLY1305", download=download, pace_bit_s=SSH_BIT_S
    )
    due = sorted({one.due_ns / MS for one in found} - {0})
    for at_ms in seen:
        assert min(abs(one - at_ms) for one in due) < 20
    free = sftp_lengths.session(files, "CHACHA20-POLY1305", download=download)
    assert [one.request for one in free] == [one.request for one in found]
    assert not any(one.due_ns for one in free)


def test_a_pause_is_that_of_the_window() -> None:
    assert ssh_lengths.pause_s(None) == 0
    assert ssh_lengths.pause_s(8 * 1024) == 96


def test_sftp_does_not_wait_for_less_than_a_block() -> None:
    block = sftp_lengths.BLOCK_BYTES
    messages = [100, block - 200, 60, 100, 100]
    # 2,089 s for a block: from then on half of one is enough.
    whole = block + 60
    assert pace.waits_ns(messages, 8_000, block) == [0, 0, 0, whole * MS, whole * MS]
    after = pace.waits_ns([block, block // 2 - 1, 1], 8_000, block)
    assert after == [block * MS, block * MS, (block + block // 2) * MS]
    # In the lab files of 200 and 100 kB by sftp took as long at 2 Mbit/s as without a pace.
    (*_, data, _, _, _) = sftp_lengths.session(
        [("text-0000.txt", 200_000)], "CHACHA20-POLY1305", download=True, pace_bit_s=SSH_BIT_S
    )
    assert data.due_ns == 0


def test_waits_that_are_too_short_are_put_together() -> None:
    block = sftp_lengths.BLOCK_BYTES
    # 8 ms for a block: the next wait is behind two, and from then on behind two as well.
    bit_s = block * 1_000
    found = pace.waits_ns([block] * 6, bit_s, block)
    assert [at // MS for at in found] == [8, 8, 24, 24, 40, 40]


@pytest.mark.parametrize("bit_s", [10_000_000, 1_000, 1_024, 123_456_789])
def test_no_program_gets_a_higher_rate_than_the_study_s(bit_s: int) -> None:
    params = FileTransferParams.model_validate({"protocol": "sftp", "pace": f"{bit_s} bit/s"})
    assert params.pace_kbit_s is not None
    assert params.pace_kbit_s == max(1, bit_s // pace.SSH_KBIT)
