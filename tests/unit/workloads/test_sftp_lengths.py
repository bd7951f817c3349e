"""Lengths of SFTP: beside what was seen on the wire of sftp and sshd, OpenSSH 9.2p1."""

import pytest

from tunnelmark.workloads import sftp_lengths, ssh_lengths
from tunnelmark.workloads.exchanges import Exchange
from tunnelmark.workloads.sftp_lengths import BLOCK_BYTES
from tunnelmark.workloads.ssh_server import SshCipher

SIZE = 300_000
# The capture had a path of 29 bytes on the server, a lab's is longer by the rest.
NAME = "file-0001.bin"


@pytest.fixture(autouse=True)
def _captured_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = dict.fromkeys(("get", "put"), len("/tmp/hsim-a/srv/"))  # noqa: S108 - its length
    monkeypatch.setattr(sftp_lengths, "_FOLDER_BYTES", folder)


# Bytes of each exchange behind those with which any connection begins, each way.
OPENINGS: dict[SshCipher, list[tuple[int, int]]] = {
    "CHACHA20-POLY1305": [(52, 72), (44, 356)],
    "AES-128-GCM": [(52, 72), (52, 356)],
    "AES-128-CTR": [(68, 104), (68, 372)],
}
# The limits, a place, twice the attributes, and the handle; then the reads. The second and third
# read went together, and so did the replies to them: 92 and 39,000 bytes in the place of 136 and
# 39,036.
DOWNLOADS: dict[SshCipher, list[tuple[int, int]]] = {
    "CHACHA20-POLY1305": [
        *((68, 76), (52, 76), (76, 76), (76, 76), (84, 52)),
        *((68, 261_424), (68, 38_968), (68, 68), (68, 68), (52, 68), (36, 124)),
    ],
    "AES-128-CTR": [
        *((84, 100), (68, 100), (100, 100), (100, 100), (100, 68)),
        *((84, 261_552), (84, 39_000), (84, 84), (84, 84), (68, 84), (52, 172)),
    ],
}
# What tells the client that its data was read (36 bytes for each 128 KiB) is left out.
UPLOADS: dict[SshCipher, list[tuple[int, int]]] = {
    "CHACHA20-POLY1305": [
        *((68, 76), (52, 76), (76, 68), (92, 52)),
        *((261_440, 68), (38_984, 68), (52, 68), (36, 124)),
    ],
    "AES-128-CTR": [
        *((84, 100), (68, 100), (100, 84), (116, 68)),
        *((98_460 + 131_280 + 31_828, 84), (39_016, 84), (68, 84), (52, 172)),
    ],
}


def lengths(exchanges: tuple[Exchange, ...]) -> list[tuple[int, int]]:
    return [(sum(one.request), sum(one.reply)) for one in exchanges]


@pytest.mark.parametrize("cipher", OPENINGS)
def test_what_a_connection_begins_with_is_as_long_as_on_the_wire(cipher: SshCipher) -> None:
    found = sftp_lengths.opening(cipher)
    before = ssh_lengths.opening(cipher)
    assert found[: len(before)] == before
    assert lengths(found[len(before) :]) == OPENINGS[cipher]


@pytest.mark.parametrize("cipher", DOWNLOADS)
def test_a_download_is_as_long_as_on_the_wire(cipher: SshCipher) -> None:
    found = sftp_lengths.session([(NAME, SIZE)], cipher, download=True)
    assert lengths(found) == DOWNLOADS[cipher]


@pytest.mark.parametrize("cipher", UPLOADS)
def test_an_upload_is_as_long_as_on_the_wire(cipher: SshCipher) -> None:
    found = sftp_lengths.session([(NAME, SIZE)], cipher, download=False)
    assert lengths(found) == UPLOADS[cipher]


@pytest.mark.parametrize("download", [True, False])
def test_files_behind_each_other_have_one_beginning_and_one_end(download: bool) -> None:
    files = [(NAME, SIZE), (NAME, 7_000)]
    both = sftp_lengths.session(files, "CHACHA20-POLY1305", download=download)
    one, other = (
        sftp_lengths.session([file], "CHACHA20-POLY1305", download=download) for file in files
    )
    assert both == (*one[:-1], *other[2:])
    # 7,000 bytes as seen on the wire in the same connection.
    place = 5 if download else 4
    assert lengths(other)[place] == ((68, 7_052) if download else (7_068, 68))


def test_a_file_is_read_as_sftp_reports_it() -> None:
    """As in the client's debug log: ``Short data block, re-requesting``, ``Finish at``."""
    assert list(sftp_lengths.reads(7_000)) == [(7_000, 0), (0, 0)]
    assert list(sftp_lengths.reads(SIZE)) == [(BLOCK_BYTES, 0), (38_880, 0), (0, 1), (0, 1)]


@pytest.mark.parametrize("blocks", [1, 2, 3, 64, 200])
@pytest.mark.parametrize("rest", [0, 1, 600, BLOCK_BYTES - 1])
def test_reads_get_the_whole_file_once_and_never_more_than_64_at_a_time(
    blocks: int, rest: int
) -> None:
    found = list(sftp_lengths.reads(blocks * BLOCK_BYTES + rest))
    assert sum(got for got, _ in found) == blocks * BLOCK_BYTES + rest
    assert all(0 <= ahead < 64 for _, ahead in found)
    # One more for each reply: the n-th read leaves when half of those before it are answered.
    for number, (got, ahead) in enumerate(found):
        if got == BLOCK_BYTES:
            assert ahead == min(63, number // 2)
    assert found[-1][0] == 0


def test_all_but_the_second_write_of_a_file_follow_without_a_reply() -> None:
    found = sftp_lengths.session([(NAME, 100 * BLOCK_BYTES)], "AES-128-CTR", download=False)
    writes = [one.ahead for one in found if sum(one.request) > BLOCK_BYTES]
    assert writes == [0, 0, *[64] * 98]
