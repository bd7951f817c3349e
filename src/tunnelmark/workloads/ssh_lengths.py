"""How long the packets of SSH are, and those of scp, with OpenSSH 9.2 at both ends; pure.

Packets are those of RFC 4253 section 6. What is in them follows from RFC 4252 and 4254, extensions
of OpenSSH, and what was seen on the wire for the configuration that ``ssh_server`` makes
(docs/simulation.md). The user is root.
"""

from dataclasses import dataclass
from typing import Final

from tunnelmark.workloads import pace
from tunnelmark.workloads.exchanges import Exchange
from tunnelmark.workloads.ssh_server import CIPHERS, SshCipher

_LEAST_PADDING_BYTES: Final = 4
_DATA_BYTES: Final = 1 << 15
"""What a packet carries at most (RFC 4253 section 6.1)."""
_DATA_HEAD_BYTES: Final = 9
"""Type, channel, length (RFC 4254 section 5.2)."""
_VERSION_BYTES: Final = len("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10\r\n")
# Keys: sntrup761x25519-sha512@openssh.com, ssh-ed25519. Lists of algorithms without the cipher.
_CLIENT_LISTS_BYTES: Final = 960
_SERVER_LISTS_BYTES: Final = 456
_CLIENT_KEY_BYTES: Final = 1 + 4 + 1190
_SERVER_KEY_BYTES: Final = 1 + (4 + 51) + (4 + 1071) + (4 + 83)
_EXTENSIONS_BYTES: Final = 288
_SERVICE_BYTES: Final = 1 + 4 + len("ssh-userauth")
_NO_PASSWORD_BYTES: Final = 1 + (4 + 4) + (4 + 14) + (4 + 4)
_ALLOWED_BYTES: Final = 1 + (4 + 9) + 1
_OFFER_BYTES: Final = 1 + (4 + 4) + (4 + 14) + (4 + 9) + 1 + (4 + 11) + (4 + 51)
_ACCEPTED_BYTES: Final = 1 + (4 + 11) + (4 + 51)
_SIGNED_BYTES: Final = _OFFER_BYTES + 26 + (4 + 51) + (4 + 83)
"""``publickey-hostbound-v00@openssh.com``, the key of the server, and the signature."""
_OPEN_BYTES: Final = (1 + (4 + 7) + 3 * 4, 1 + (4 + 28) + 1)
"""The channel, and ``no-more-sessions@openssh.com``."""
_REMARKS_BYTES: Final = (144, 144, 1 + (4 + 23) + 1 + (4 + 51))
"""Two lines for a debug log, and ``hostkeys-00@openssh.com``."""
_OPENED_BYTES: Final = 1 + 4 * 4
_COMMAND_BYTES: Final = {"-f": 88, "-t": 104}
"""With the name of a file of a lab."""
STARTED_BYTES: Final = (1 + 2 * 4, 1 + 4)
"""A window, and success."""
_STATUS_BYTES: Final = 1 + 4 + (4 + 11) + 1 + 4
_END_BYTES: Final = 1 + 4
_EOW_BYTES: Final = 1 + 4 + (4 + 15) + 1
_WINDOW_BYTES: Final = 64 * _DATA_BYTES
"""What may be under way through a channel (``CHAN_SES_WINDOW_DEFAULT``)."""
_ADJUST_BYTES: Final = 3 * _DATA_BYTES
"""So much is read before the sender hears of it (``channel_check_window``)."""


@dataclass(frozen=True)
class Sealed:
    """How a packet is made of a message."""

    block_bytes: int
    tag_bytes: int

    def packets(self, *messages: int) -> int:
        """Return the bytes of packets with such messages."""
        return sum(self._packet(one) for one in messages)

    def data(self, size_bytes: int) -> int:
        """Return the bytes of packets that carry so much through the channel."""
        full, rest = divmod(size_bytes, _DATA_BYTES)
        lengths = [_DATA_BYTES, *([rest] if rest else [])]
        one, *last = (self._packet(_DATA_HEAD_BYTES + length) for length in lengths)
        return full * one + sum(last)

    def _packet(self, message: int) -> int:
        # The length itself is in no block: it is encrypted apart, or not at all.
        least = 1 + message + _LEAST_PADDING_BYTES
        return 4 + -(-least // self.block_bytes) * self.block_bytes + self.tag_bytes


SEALED: Final[dict[SshCipher, Sealed]] = {
    "CHACHA20-POLY1305": Sealed(8, 16),
    "AES-128-GCM": Sealed(16, 16),
    "AES-256-GCM": Sealed(16, 16),
    "AES-128-CTR": Sealed(16, 32),
    "AES-256-CTR": Sealed(16, 32),
}


def opening(cipher: SshCipher) -> tuple[Exchange, ...]:
    """Return what a connection begins with, up to its channel.

    So far OpenSSH lets the kernel hold short segments back.
    """
    sealed = SEALED[cipher]
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((_VERSION_BYTES,), (_VERSION_BYTES,)),
        (
            (_plain(_lists(_CLIENT_LISTS_BYTES, cipher)),),
            (_plain(_lists(_SERVER_LISTS_BYTES, cipher)),),
        ),
        (
            (_plain(_CLIENT_KEY_BYTES),),
            (_plain(_SERVER_KEY_BYTES) + _plain(1) + sealed.packets(_EXTENSIONS_BYTES),),
        ),
        ((_plain(1), sealed.packets(_SERVICE_BYTES)), (sealed.packets(_SERVICE_BYTES),)),
        ((sealed.packets(_NO_PASSWORD_BYTES),), (sealed.packets(_ALLOWED_BYTES),)),
        ((sealed.packets(_OFFER_BYTES),), (sealed.packets(_ACCEPTED_BYTES),)),
        ((sealed.packets(_SIGNED_BYTES),), (sealed.packets(1),)),
        (
            (sealed.packets(*_OPEN_BYTES),),
            (sealed.packets(*_REMARKS_BYTES), sealed.packets(_OPENED_BYTES)),
        ),
    )
    return tuple(Exchange(request, reply, held=True) for request, reply in pairs)


def ending(cipher: SshCipher) -> Exchange:
    """Return what a client says that has nothing more to send, and the server's status."""
    sealed = SEALED[cipher]
    end = sealed.packets(_END_BYTES, _STATUS_BYTES, _END_BYTES)
    return Exchange((sealed.packets(_END_BYTES),), (end,))


def fetch(
    name: str, size_bytes: int, cipher: SshCipher, pace_bit_s: int | None = None
) -> tuple[Exchange, ...]:
    """Return a download by ``scp -O``; the file is in the last exchange but one."""
    sealed = SEALED[cipher]
    ready = (sealed.data(1),)
    end = sealed.packets(_END_BYTES, _STATUS_BYTES, _EOW_BYTES, _END_BYTES)
    # A byte behind the file says that it was read to its end.
    moved, read_ns = Exchange(ready, (sealed.data(size_bytes + 1),)), 0
    if pace_bit_s is not None:
        # scp reads no faster. sshd sends until the window of the channel is full.
        paced = pace.read(size_bytes + 1, _WINDOW_BYTES, _ADJUST_BYTES, pace_bit_s)
        pieces = tuple(sealed.data(piece) for piece in paced.pieces)
        moved = Exchange(ready, pieces, reply_due_ns=paced.due_ns)
        read_ns = size_bytes * 8 * 10**9 // pace_bit_s
    return (
        Exchange((sealed.packets(_COMMAND_BYTES["-f"]),), (sealed.packets(*STARTED_BYTES),)),
        Exchange(ready, (sealed.data(_announced(name, size_bytes)),)),
        moved,
        Exchange(ready, (end,), due_ns=read_ns),
    )


def leave(
    name: str, size_bytes: int, cipher: SshCipher, pace_bit_s: int | None = None
) -> tuple[Exchange, ...]:
    """Return an upload; the file is in the last exchange but one."""
    sealed = SEALED[cipher]
    ready = (sealed.data(1),)
    started = (sealed.packets(*STARTED_BYTES), *ready)
    moved = Exchange((sealed.data(size_bytes + 1),), ready)
    if pace_bit_s is not None:
        paced = pace.by_scp(size_bytes, pace_bit_s)
        pieces = (*(sealed.data(piece) for piece in paced.pieces), *ready)
        moved = Exchange(pieces, ready, request_due_ns=(*paced.due_ns, paced.due_ns[-1]))
    return (
        Exchange((sealed.packets(_COMMAND_BYTES["-t"]),), started),
        Exchange((sealed.data(_announced(name, size_bytes)),), ready),
        moved,
        ending(cipher),
    )


def pause_s(pace_bit_s: int | None) -> int:
    """Return how long nothing of a file may be sent at such a pace, at most."""
    return 0 if pace_bit_s is None else -(-_ADJUST_BYTES * 8 // pace_bit_s)


def _announced(name: str, size_bytes: int) -> int:
    return len(f"C0600 {size_bytes} {name}\n")


def _lists(others: int, cipher: SshCipher) -> int:
    """Return the names of algorithms; the cipher's stands in two of the lists."""
    return others + 2 * len(CIPHERS[cipher])


def _plain(message: int) -> int:
    """Return the bytes of a packet before there are keys."""
    least = 4 + 1 + message + _LEAST_PADDING_BYTES
    return -(-least // 8) * 8
