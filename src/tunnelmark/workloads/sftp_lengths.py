"""What sftp and sshd send for files, with OpenSSH 9.2 at both ends; pure.

Messages are those of draft-ietf-secsh-filexfer-02 and of OpenSSH's file PROTOCOL. Which there are,
and when they are sent, was seen on the wire for the configuration that ``ssh_server`` makes
(docs/simulation.md).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tunnelmark.workloads import pace, ssh_lengths
from tunnelmark.workloads.exchanges import Exchange
from tunnelmark.workloads.ssh_server import SshCipher

BLOCK_BYTES: Final = 255 << 10
"""What a request reads or writes: the limit that the server names (``limits@openssh.com``)."""
_MOST_REQUESTS: Final = 64
"""Reads under way at a time (``-R``); of writes one more."""
_LEAST_BLOCK_BYTES: Final = 512
_SUBSYSTEM_BYTES: Final = 1 + 4 + (4 + 9) + 1 + (4 + 4)
"""The request of the channel, no message of sftp."""
_FOLDER_BYTES: Final = {"get": 44 + len("/files/"), "put": 44 + len("/arrived/path-0/")}
"""Of a lab, on the server."""

# A message begins with its length, its type and, but for the first ones, its number.
_HEAD_BYTES: Final = 4 + 1 + 4
_INIT_BYTES: Final = 4 + 1 + 4
_EXTENSIONS: Final = (
    *(("posix-rename@openssh.com", 1), ("statvfs@openssh.com", 2), ("fstatvfs@openssh.com", 2)),
    *(("hardlink@openssh.com", 1), ("fsync@openssh.com", 1), ("lsetstat@openssh.com", 1)),
    *(("limits@openssh.com", 1), ("expand-path@openssh.com", 1), ("copy-data", 1)),
    *(("home-directory", 1), ("users-groups-by-id@openssh.com", 1)),
)
_VERSION_BYTES: Final = _INIT_BYTES + sum(4 + len(name) + 4 + 1 for name, _ in _EXTENSIONS)
_LIMITS_BYTES: Final = _HEAD_BYTES + 4 + len("limits@openssh.com")
_LIMITED_BYTES: Final = _HEAD_BYTES + 4 * 8
_HERE_BYTES: Final = _HEAD_BYTES + 4 + len(".")
_PLACE_BYTES: Final = _HEAD_BYTES + 4 + 2 * (4 + len("/root")) + 4
_ATTRIBUTES_BYTES: Final = _HEAD_BYTES + 4 + 8 + 2 * 4 + 4 + 2 * 4
_HANDLE_BYTES: Final = 4 + 4
_OPENED_BYTES: Final = _HEAD_BYTES + _HANDLE_BYTES
_CLOSE_BYTES: Final = _HEAD_BYTES + _HANDLE_BYTES
_READ_BYTES: Final = _HEAD_BYTES + _HANDLE_BYTES + 8 + 4
_DATA_BYTES: Final = _HEAD_BYTES + 4
_WRITE_BYTES: Final = _HEAD_BYTES + _HANDLE_BYTES + 8 + 4


@dataclass(frozen=True)
class _Said:
    """A message and the one that answers it, in bytes."""

    request: int
    reply: int
    ahead: int = 0


def opening(cipher: SshCipher) -> tuple[Exchange, ...]:
    """Return what a connection begins with, up to the version of the protocol."""
    sealed = ssh_lengths.SEALED[cipher]
    return (
        *ssh_lengths.opening(cipher),
        Exchange(
            (sealed.packets(_SUBSYSTEM_BYTES),), (sealed.packets(*ssh_lengths.STARTED_BYTES),)
        ),
        _exchange(_Said(_INIT_BYTES, _VERSION_BYTES), cipher),
    )


def session(
    files: list[tuple[str, int]],
    cipher: SshCipher,
    *,
    download: bool,
    pace_bit_s: int | None = None,
) -> tuple[Exchange, ...]:
    """Return what one run of sftp sends for files, each a name and a size, and the end."""
    said = [_Said(_LIMITS_BYTES, _LIMITED_BYTES), _Said(_HERE_BYTES, _PLACE_BYTES)]
    one = _fetched if download else _left
    for name, size_bytes in files:
        said += one(name, size_bytes)
    due_ns = [0] * len(said)
    if pace_bit_s is not None:
        # sftp waits when it has read a reply, or has written a request.
        lengths = [message.reply if download else message.request for message in said]
        done_ns = [0, *pace.waits_ns(lengths, pace_bit_s, BLOCK_BYTES)]
        due_ns = [
            done_ns[number - (message.ahead if download else 0)]
            for number, message in enumerate(said)
        ]
    exchanges = [
        _exchange(message, cipher, at_ns) for message, at_ns in zip(said, due_ns, strict=True)
    ]
    return (*exchanges, ssh_lengths.ending(cipher))


def _fetched(name: str, size_bytes: int) -> Iterator[_Said]:
    path = _HEAD_BYTES + 4 + _FOLDER_BYTES["get"] + len(name)
    # The link itself, then what it leads to.
    yield from [_Said(path, _ATTRIBUTES_BYTES)] * 2
    yield _Said(path + 4 + 4, _OPENED_BYTES)
    for got, ahead in reads(size_bytes):
        yield _Said(_READ_BYTES, _DATA_BYTES + got if got else _status("End of file"), ahead)
    yield _Said(_CLOSE_BYTES, _status("Success"))


def _left(name: str, size_bytes: int) -> Iterator[_Said]:
    path = _HEAD_BYTES + 4 + _FOLDER_BYTES["put"] + len(name)
    yield _Said(path, _status("No such file"))
    # With its permissions.
    yield _Said(path + 4 + 4 + 4, _OPENED_BYTES)
    for number, begin in enumerate(range(0, size_bytes, BLOCK_BYTES)):
        # The first one is waited for.
        ahead = _MOST_REQUESTS if number > 1 else 0
        written = min(BLOCK_BYTES, size_bytes - begin)
        yield _Said(_WRITE_BYTES + written, _status("Success"), ahead)
    yield _Said(_CLOSE_BYTES, _status("Success"))


def reads(size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield what each read of a file gets, 0 for its end, and how many are under way before it.

    One at first; each reply lets one more be under way. Where less comes than a read wanted the
    rest is read again, to see that the file ends there.
    """
    under_way: deque[tuple[int, int]] = deque()
    place, block, most = 0, BLOCK_BYTES, 1

    def read(begin: int, length: int) -> tuple[int, int]:
        under_way.append((begin, length))
        return max(0, min(length, size_bytes - begin)), len(under_way) - 1

    while under_way or most:
        while len(under_way) < most:
            yield read(place, block)
            place += block
        begin, length = under_way.popleft()
        got = max(0, min(length, size_bytes - begin))
        if not got:
            most = 0
        elif got < length:
            yield read(begin + got, length - got)
            block = min(block, max(_LEAST_BLOCK_BYTES, got))
        if most:
            most = 1 if place > size_bytes else min(_MOST_REQUESTS, most + 1)


def _status(words: str) -> int:
    return _HEAD_BYTES + 4 + 4 + len(words) + 4


def _exchange(said: _Said, cipher: SshCipher, due_ns: int = 0) -> Exchange:
    sealed = ssh_lengths.SEALED[cipher]
    request, reply = sealed.data(said.request), sealed.data(said.reply)
    return Exchange((request,), (reply,), ahead=said.ahead, due_ns=due_ns)
