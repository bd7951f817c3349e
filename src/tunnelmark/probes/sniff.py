"""A capture for where tcpdump cannot run: ``python -m tunnelmark.probes.sniff IF FILE MAX SNAP``.

tcpdump insists on changing its groups, which nobody may do inside a user namespace made without
root. This writes the same file and says the same words: ``listening on``, and the counts at the
end.
"""

import contextlib
import errno
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import BinaryIO, Final


def main(arguments: list[str]) -> int:
    """Capture from an interface until TERM, INT or the limit of packets; return the exit status."""
    interface, file, max_packets, snap_bytes = arguments
    try:
        with (
            _listening(interface) as sniffer,
            _stopping() as stop,
            Path(file).open("wb") as output,
        ):
            _say(f"listening on {interface}, link-type EN10MB (Ethernet), {snap_bytes} bytes")
            captured = _copy(sniffer, stop, output, int(max_packets), int(snap_bytes))
            received, dropped = _statistics(sniffer)
    except OSError as error:
        _say(f"{interface}: {error.strerror or error}")
        return 1
    _say(f"{captured} packets captured")
    _say(f"{received} packets received by filter")
    _say(f"{dropped} packets dropped by kernel")
    return 0


_ETH_P_ALL: Final = 3
_SO_TIMESTAMPNS: Final = 35
_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_RING_BYTES: Final = 8 << 20
_TIMESPEC: Final = struct.Struct("qq")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _listening(interface: str) -> socket.socket:
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RING_BYTES)
        with contextlib.suppress(OSError):  # SO_RCVBUFFORCE: beyond the limit, where allowed
            sniffer.setsockopt(socket.SOL_SOCKET, 33, _RING_BYTES)
        sniffer.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        # Bound before it hears anything: a packet of another interface is never among them.
        sniffer.bind((interface, _ETH_P_ALL))
        sniffer.setblocking(False)
    except OSError:
        sniffer.close()
        raise
    return sniffer


def _stopping() -> socket.socket:
    """Return a socket that becomes readable when the process is asked to end."""
    here, there = socket.socketpair()
    there.setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(there.detach())
    return here


def _copy(
    sniffer: socket.socket,
    stop: socket.socket,
    output: BinaryIO,
    max_packets: int,
    snap_bytes: int,
) -> int:
    # pcap-savefile(5): nanoseconds, version 2.4, Ethernet; every packet is written at once.
    output.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap_bytes, 1))
    output.flush()
    captured = 0
    while captured < max_packets:
        readable, _, _ = select.select([sniffer, stop], [], [])
        if sniffer not in readable:
            break  # asked to end, and nothing is waiting any more
        with contextlib.suppress(BlockingIOError):
            frame, ancillary, flags, _ = sniffer.recvmsg(snap_bytes, socket.CMSG_SPACE(16), 0)
            # How long a frame was that was cut off is unknown: longer than what is here.
            length = len(frame) + bool(flags & socket.MSG_TRUNC)
            seconds, nanoseconds = _time(ancillary)
            output.write(struct.pack("<IIII", seconds, nanoseconds, len(frame), length) + frame)
            output.flush()
            captured += 1
    return captured


def _time(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds), int(nanoseconds)
    raise OSError(errno.ENODATA, "the kernel gave a packet no timestamp")


def _statistics(sniffer: socket.socket) -> tuple[int, int]:
    """Return (received, dropped) as packet(7) counts them."""
    raw = sniffer.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
    received, dropped = struct.unpack("II", raw)
    return int(received), int(dropped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
