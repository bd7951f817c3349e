"""Burn a known time in the kernel for each packet of an address that leaves, until this ends.

``burn.py INTERFACE IPV4 NS``: a BPF program on the interface's way out (TCX, before Linux 6.6 a
classifier of tc) reads the kernel's clock until it has run for so long. It is put together here by
hand: bpf(2), rtnetlink(7), and the instruction set of the kernel's Documentation/bpf/
standardization. Writes ``ready NS`` with what the kernel itself
measures of one run (BPF_PROG_TEST_RUN), then sleeps.
"""

import ctypes
import errno
import os
import signal
import socket
import struct
import subprocess
import sys

_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _PROG_TEST_RUN, _LINK_CREATE = 5, 10, 28
_SCHED_CLS, _TCX_EGRESS = 3, 47
_KTIME_GET_NS = 5
_SOURCE_AT = 14 + 12
_NEXT = -1
"""TCX_NEXT, TC_ACT_UNSPEC: whatever is attached behind it decides."""
_NEWTFILTER, _REQUEST_CREATE_ACK = 44, 0x605
_CLSACT_EGRESS, _FIRST_OF_ALL_PROTOCOLS = 0xFFFFFFF3, 0x10300
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS, _DIRECT_ACTION = 6, 7, 8, 1
_TEST_RUNS = 200
_SOME_LOOKS, _WITHOUT_END_NS = 100, 1_000_000_000
_PAUSE_LOOKS = 8
"""So much longer than a look the shortest interrupt is."""
_MOST_LOOKS = 8_000
"""The verifier follows at most 8192 jumps."""
_READS = 6
"""Of the clock for each look, 20 ns or more each: time must pass."""


def instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | to, offset, value)


def program(ns: int, address: int, *, pause_bits: int = 63, looks: int = _MOST_LOOKS) -> bytes:
    """Return the instructions: r6 the end, r7 how often to look on, r8 when it last looked.

    A look that comes 2^pause_bits ns or more after the one before was interrupted, and the end is
    later by that: what the processor did in between would else cost nothing.
    """
    call = instruction(0x85, value=_KTIME_GET_NS)
    look = [
        *_READS * [call],
        instruction(0xBF, to=1, source=0),
        instruction(0x1F, to=1, source=8),
        instruction(0xBF, to=8, source=0),
        instruction(0xBF, to=2, source=1),
        instruction(0x77, to=2, value=pause_bits),
        instruction(0x87, to=2),
        instruction(0xC7, to=2, value=63),  # all bits if it was interrupted, else none
        instruction(0x5F, to=1, source=2),
        instruction(0x0F, to=6, source=1),
    ]
    burn = [
        call,
        instruction(0xBF, to=8, source=0),
        instruction(0xBF, to=6, source=0),
        instruction(0x07, to=6, value=ns),
        instruction(0xB7, to=7, value=looks),
        *look,
        instruction(0x3D, to=0, source=6, offset=2),  # it has passed: out of the loop
        instruction(0x07, to=7, value=-1),
        instruction(0x55, to=7, offset=-len(look) - 3),
    ]
    return b"".join(
        [
            instruction(0xBF, to=6, source=1),
            instruction(0x20, value=_SOURCE_AT),  # into r0, of the packet that r6 names
            instruction(0xB4, to=1, value=address),
            instruction(0x5D, to=0, source=1, offset=len(burn)),
            *burn,
            instruction(0xB7, to=0, value=_NEXT),
            instruction(0x95),
        ]
    )


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Call bpf(2); return its result and the attributes as it left them."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    done = libc.syscall(_BPF[os.uname().machine], command, buffer, len(attributes))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"bpf command {command}")
    return done, buffer.raw


def classify(program: int, index: int) -> None:
    """Attach a program as the first classifier of what leaves an interface."""
    options = b"".join(
        [
            attribute(_TCA_BPF_FD, struct.pack("<I", program)),
            attribute(_TCA_BPF_NAME, b"burn\0"),
            attribute(_TCA_BPF_FLAGS, struct.pack("<I", _DIRECT_ACTION)),
        ]
    )
    message = struct.pack("<BxxxiIII", 0, index, 0, _CLSACT_EGRESS, _FIRST_OF_ALL_PROTOCOLS)
    message += attribute(_TCA_KIND, b"bpf\0") + attribute(_TCA_OPTIONS, options)
    header = struct.pack("<IHHII", 16 + len(message), _NEWTFILTER, _REQUEST_CREATE_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.sendall(header + message)
        (failed,) = struct.unpack_from("<i", netlink.recv(4096), 16)
    if failed:
        raise OSError(-failed, "RTM_NEWTFILTER")


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def load(code: bytes, address: bytes) -> tuple[int, int]:
    """Return the loaded program and how many nanoseconds it takes for a packet."""
    buffer = ctypes.create_string_buffer(code)
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "<IIQQIIQII",
        *(_SCHED_CLS, len(code) // 8, ctypes.addressof(buffer), ctypes.addressof(licence)),
        *(0, 0, 0, 0, 0),
    )
    loaded, _ = bpf(_PROG_LOAD, attributes)
    packet = ctypes.create_string_buffer(bytes(_SOURCE_AT) + address, 64)
    out = ctypes.create_string_buffer(256)
    run = struct.pack(
        "<IIIIQQII",
        *(loaded, 0, 64, 256, ctypes.addressof(packet), ctypes.addressof(out), 1, 0),
    )
    # The shortest: an interrupt in the midst of a run is no time of the program's.
    runs = (bpf(_PROG_TEST_RUN, run)[1] for _ in range(_TEST_RUNS))
    return loaded, min(struct.unpack("<IIIIQQII", done)[7] for done in runs)


def main(interface: str, address: bytes, ns: int) -> None:
    number = struct.unpack(">i", address)[0]
    _, measured = load(program(_WITHOUT_END_NS, number, looks=_SOME_LOOKS), address)
    pause_bits = (_PAUSE_LOOKS * measured // _SOME_LOOKS).bit_length()
    loaded, measured = load(program(ns, number, pause_bits=pause_bits), address)
    index = socket.if_nametoindex(interface)
    try:
        # The link lives as long as this process keeps it open.
        bpf(_LINK_CREATE, struct.pack("<IIII", loaded, index, _TCX_EGRESS, 0) + bytes(48))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # It goes with the interface, which goes with the namespace.
        subprocess.run(["tc", "qdisc", "add", "dev", interface, "clsact"], check=True)
        classify(loaded, index)
    sys.stdout.write(f"ready {measured}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], socket.inet_aton(sys.argv[2]), int(sys.argv[3]))
