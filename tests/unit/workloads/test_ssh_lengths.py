"""Lengths of SSH: beside what was seen on the wire of scp and sshd, OpenSSH 9.2p1."""

import pytest

from tunnelmark.workloads import ssh_lengths
from tunnelmark.workloads.exchanges import Exchange
from tunnelmark.workloads.ssh_server import SshCipher

# Segments each way, one exchange after the other, of a file of 300,000 bytes.
OPENINGS: dict[SshCipher, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "CHACHA20-POLY1305": [
        *(((41,), (41,)), ((1032,), (528,)), ((1208,), (1448 + 116,)), ((16, 44), (44,))),
        *(((60,), (44,)), ((140,), (100,)), ((308,), (28,)), ((112,), (460, 44))),
    ],
    "AES-128-GCM": [
        *(((41,), (41,)), ((1016,), (512,)), ((1208,), (1448 + 124,)), ((16, 52), (52,))),
        *(((68,), (52,)), ((148,), (100,)), ((308,), (36,)), ((120,), (476, 52))),
    ],
    "AES-128-CTR": [
        *(((41,), (41,)), ((992,), (488,)), ((1208,), (1448 + 140,)), ((16, 68), (68,))),
        *(((84,), (68,)), ((164,), (116,)), ((324,), (52,)), ((152,), (524, 68))),
    ],
}
NAME, SIZE = "file-0001.bin", 300_000


@pytest.mark.parametrize("cipher", OPENINGS)
def test_what_a_connection_begins_with_is_as_long_as_on_the_wire(cipher: SshCipher) -> None:
    found = ssh_lengths.opening(cipher)
    assert [(one.request, one.reply) for one in found] == OPENINGS[cipher]
    assert all(one.held for one in found)


# Each exchange: request, and the pieces of the reply.
DOWNLOADS: dict[SshCipher, list[tuple[int, ...]]] = {
    "CHACHA20-POLY1305": [(116, 72), (36, 68), (36, 115_840 + 130_320 + 54_200), (36, 176)],
    "AES-128-GCM": [(116, 72), (36, 68), (36, 115_840 + 130_320 + 54_200), (36, 176)],
    "AES-128-CTR": [(132, 104), (52, 84), (52, 115_840 + 131_768 + 52_912), (52, 240)],
}
UPLOADS: dict[SshCipher, list[tuple[int, ...]]] = {
    "CHACHA20-POLY1305": [(132, 72, 36), (68, 36), (234_576 + 65_784, 36), (36, 124)],
    "AES-128-CTR": [(148, 104, 52), (84, 52), (234_576 + 65_944, 52), (52, 172)],
}


@pytest.mark.parametrize("cipher", DOWNLOADS)
def test_a_download_is_as_long_as_on_the_wire(cipher: SshCipher) -> None:
    expected = [Exchange((request,), tuple(reply)) for request, *reply in DOWNLOADS[cipher]]
    assert [*ssh_lengths.fetch(NAME, SIZE, cipher)] == expected


@pytest.mark.parametrize("cipher", UPLOADS)
def test_an_upload_is_as_long_as_on_the_wire(cipher: SshCipher) -> None:
    expected = [Exchange((request,), tuple(reply)) for request, *reply in UPLOADS[cipher]]
    assert [*ssh_lengths.leave(NAME, SIZE, cipher)] == expected


def test_a_file_of_whole_packets_has_the_byte_behind_it_in_one_of_its_own() -> None:
    fewer, more = (
        ssh_lengths.fetch(NAME, size, "CHACHA20-POLY1305")[2].reply[0]
        for size in ((1 << 15) - 1, 1 << 15)
    )
    assert more - fewer == 36
