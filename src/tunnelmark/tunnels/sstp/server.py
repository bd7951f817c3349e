"""A server of SSTP (MS-SSTP): TLS on one side, a pppd for each call on the other.

A program of its own: the driver puts this file on the server's host and starts it there with the
host's Python, so it uses the standard library only. ``server.py CONFIG`` takes a JSON file:

    {"listen": "198.18.0.2", "port": 443, "certificate": FILE, "key": FILE, "tls": "1.3",
     "calls": [["pppd", "file", FILE], …]}

The n-th client that asks gets the n-th call; its pppd runs on a terminal of its own. Every packet
of PPP goes out as one packet of SSTP in one TLS record. What happens is said on standard error, a
line each. The crypto binding of MS-SSTP section 3.2.5.3 is compared as far as the server's own
nonce and certificate go; the compound MAC, which binds it to the password, is not recomputed.
"""

import binascii
import hashlib
import json
import os
import re
import secrets
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import tty
from collections import deque
from pathlib import Path

URI = "/sra_{BA195980-CD49-458b-9E23-C84EE0ADCD75}/"
"""MS-SSTP section 3.2.4.1."""
HEADER_BYTES = 4
DATA, CONTROL = 0, 1
CONNECT_REQUEST, CONNECT_ACK, CONNECTED, ABORT = 1, 2, 4, 5
DISCONNECT, DISCONNECT_ACK, ECHO_REQUEST, ECHO_RESPONSE = 6, 7, 8, 9


def main(arguments: list[str]) -> int:
    """Serve until TERM; return the exit status."""
    config = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[config["tls"]]
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(config["certificate"], config["key"])
    pem = Path(config["certificate"]).read_text(encoding="ascii")
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    # A call's process that has ended leaves nothing to be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server((config["listen"], config["port"]), backlog=64) as server:
        say(f"listening on {config['listen']} port {config['port']}")
        for number, pppd in enumerate(config["calls"]):
            connection, (address, port) = server.accept()
            say(f"call {number} from {address} port {port}")
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os._exit(serve(connection, context, number, pppd, fingerprint))
            connection.close()
        say(f"all {len(config['calls'])} calls are taken")
        while True:
            signal.pause()


def serve(
    connection: socket.socket,
    context: ssl.SSLContext,
    number: int,
    pppd: list[str],
    fingerprint: bytes,
) -> int:
    """Serve one client to its end; return the exit status of the call's process."""
    try:
        connection.settimeout(_HANDSHAKE_LIMIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(connection, server_side=True) as stream:
            cipher = stream.cipher()
            say(f"call {number}: {stream.version()} {cipher[0] if cipher else 'no cipher'}")
            rest = accept_request(stream)
            Call(stream, number, pppd, fingerprint).run(rest)
    except (OSError, SstpError) as error:
        say(f"call {number}: {error}")
        return 1
    return 0


class SstpError(Exception):
    """The client does not speak SSTP, or ends the call."""


def accept_request(stream: ssl.SSLSocket) -> bytes:
    """Read the HTTP request, answer it; return what came behind it (MS-SSTP section 3.3.5.1)."""
    head = b""
    while b"\r\n\r\n" not in head:
        if len(head) > _MOST_REQUEST_BYTES:
            raise SstpError(f"the HTTP request has more than {_MOST_REQUEST_BYTES} bytes")
        more = stream.recv(4096)
        if not more:
            raise SstpError("the client left within its HTTP request")
        head += more
    head, _, rest = head.partition(b"\r\n\r\n")
    line = head.split(b"\r\n", 1)[0].decode("ascii", "replace")
    if line != f"SSTP_DUPLEX_POST {URI} HTTP/1.1":
        stream.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        raise SstpError(f"asks for {line[:80]!r}, which is not SSTP")
    stream.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\nServer: tunnelmark\r\n\r\n"
    )
    return rest


class Call:
    """One client and its pppd."""

    def __init__(
        self, stream: ssl.SSLSocket, number: int, pppd: list[str], fingerprint: bytes
    ) -> None:
        """Take a connection on which HTTP is done."""
        self.stream = stream
        self.number = number
        self.pppd = pppd
        self.fingerprint = fingerprint
        self.nonce = secrets.token_bytes(32)
        self.received = b""
        """From the client, not yet a whole packet."""
        self.sending: deque[bytes] = deque()
        """To the client, one packet each."""
        self.frames = b""
        """From pppd, not yet a whole frame."""
        self.writing = b""
        """To pppd."""
        self.terminal = -1
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = False
        self.watched: dict[int, int] = {}
        """Events that the selector waits for, by descriptor."""

    def run(self, rest: bytes = b"") -> None:
        """Carry packets both ways until one side ends; ``rest`` came behind the HTTP request."""
        self.stream.setblocking(False)
        with selectors.DefaultSelector() as selector:
            try:
                self.take(rest)
                while not self.ended:
                    self.watch(selector)
                    # TLS may hold packets that the socket no longer shows.
                    held = self.readable and self.stream.pending() > 0
                    ready = {key.fd: events for key, events in selector.select(0 if held else None)}
                    self.turn(ready, held=held)
                self.write_client()
            finally:
                self.hang_up()

    @property
    def readable(self) -> bool:
        """Whether there is room for more from the client: a slow pppd slows it down."""
        return len(self.writing) < _MOST_WAITING_BYTES

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Ask the selector for what there is room for."""
        read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
        wanted = {
            self.stream.fileno(): (read if self.readable else 0) | (write if self.sending else 0)
        }
        if self.terminal >= 0:
            room = len(self.sending) < _MOST_WAITING_PACKETS
            wanted[self.terminal] = (read if room else 0) | (write if self.writing else 0)
        for descriptor, events in wanted.items():
            before = self.watched.get(descriptor, 0)
            if events == before:
                continue
            if before:
                selector.unregister(descriptor)
            if events:
                selector.register(descriptor, events)
            self.watched[descriptor] = events

    def turn(self, ready: dict[int, int], *, held: bool) -> None:
        """Do what is ready."""
        if held or ready.get(self.stream.fileno(), 0) & selectors.EVENT_READ:
            self.read_client()
        if self.terminal >= 0:
            if ready.get(self.terminal, 0) & selectors.EVENT_READ:
                self.read_pppd()
            self.write_pppd()
        self.write_client()

    def read_client(self) -> None:
        """Take what the client sent, while there is room for it."""
        while self.readable and not self.ended:
            try:
                data = self.stream.recv(65536)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise SstpError("the client closed the connection")
            self.take(data)

    def take(self, data: bytes) -> None:
        """Take bytes of the client."""
        packets, self.received = split_packets(self.received + data)
        for kind, payload in packets:
            if kind == CONTROL:
                self.control(payload)
            elif self.terminal >= 0:
                self.writing += encode_frame(payload)
            else:
                raise SstpError("sent data before it asked for a connection")

    def write_client(self) -> None:
        """Send what the connection takes."""
        while self.sending:
            try:
                sent = self.stream.send(self.sending[0])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if sent < len(self.sending[0]):
                self.sending[0] = self.sending[0][sent:]
            else:
                self.sending.popleft()

    def read_pppd(self) -> None:
        """Take frames from pppd."""
        try:
            data = os.read(self.terminal, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # the terminal of a pppd that has ended
        if not data:
            self.sending.append(control_packet(DISCONNECT))
            self.write_client()
            raise SstpError("pppd has ended")
        *whole, self.frames = (self.frames + data).split(b"\x7e")
        if len(self.frames) > _MOST_FRAME_BYTES:
            raise SstpError(f"pppd sent a frame of more than {_MOST_FRAME_BYTES} bytes")
        for raw in whole:
            frame = decode_frame(raw)
            if frame:
                self.sending.append(packet(DATA, frame))

    def write_pppd(self) -> None:
        """Give pppd what its terminal takes."""
        try:
            if self.writing:
                self.writing = self.writing[os.write(self.terminal, self.writing) :]
        except BlockingIOError:
            return

    def control(self, payload: bytes) -> None:
        """Obey one control packet (MS-SSTP section 3.3.5.2)."""
        kind, attributes = parse_control(payload)
        if kind == CONNECT_REQUEST and self.process is None:
            if attributes.get(_PROTOCOL_ID) != b"\x00\x01":
                raise SstpError("asks for another protocol than PPP")
            binding = bytes(3) + bytes([_SHA256]) + self.nonce
            self.sending.append(control_packet(CONNECT_ACK, {_BINDING_REQUEST: binding}))
            self.start_pppd()
        elif kind == CONNECTED:
            say(f"call {self.number}: {self.judge_binding(attributes.get(_BINDING, b''))}")
        elif kind == ECHO_REQUEST:
            self.sending.append(control_packet(ECHO_RESPONSE))
        elif kind == DISCONNECT:
            self.sending.append(control_packet(DISCONNECT_ACK))
            self.ended = True
        elif kind in (ABORT, DISCONNECT_ACK):
            raise SstpError(f"the client ended the call with message {kind}")
        elif kind != ECHO_RESPONSE:
            raise SstpError(f"sent message {kind} out of turn")

    def judge_binding(self, value: bytes) -> str:
        """Say whether the client saw this server's nonce and certificate (section 2.2.7)."""
        if len(value) != _BINDING_BYTES or value[3] != _SHA256:
            raise SstpError(f"sent a crypto binding of {len(value)} bytes, not by SHA-256")
        if value[4:36] != self.nonce or value[36:68] != self.fingerprint:
            raise SstpError(
                "sent a crypto binding of another server: there may be a man in the middle"
            )
        return "crypto binding to nonce and certificate agreed"

    def start_pppd(self) -> None:
        """Start pppd on a terminal of its own."""
        self.terminal, theirs = os.openpty()
        tty.setraw(theirs)
        os.set_blocking(self.terminal, False)
        self.process = subprocess.Popen(self.pppd, stdin=theirs, stdout=theirs)
        os.close(theirs)
        say(f"call {self.number}: pppd started")

    def hang_up(self) -> None:
        """End pppd with the call."""
        if self.terminal >= 0:
            os.close(self.terminal)
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_PPPD_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()


def packet(kind: int, payload: bytes) -> bytes:
    """Return a packet of SSTP (MS-SSTP section 2.2.1)."""
    return bytes([0x10, kind]) + (HEADER_BYTES + len(payload)).to_bytes(2, "big") + payload


def split_packets(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the whole packets as (data or control, payload), and what is left."""
    packets, at = [], 0
    while len(data) - at >= HEADER_BYTES:
        version, kind = data[at], data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big") & 0x0FFF
        if version != 0x10 or kind not in (DATA, CONTROL) or length < HEADER_BYTES:  # noqa: PLR2004
            raise SstpError(f"sent {data[at : at + 4].hex()} as the header of a packet")
        if len(data) - at < length:
            break
        packets.append((kind, data[at + HEADER_BYTES : at + length]))
        at += length
    return packets, data[at:]


def control_packet(kind: int, attributes: "dict[int, bytes] | None" = None) -> bytes:
    """Return a control packet (MS-SSTP section 2.2.2)."""
    parts = [
        bytes([0, name]) + (4 + len(value)).to_bytes(2, "big") + value
        for name, value in (attributes or {}).items()
    ]
    head = kind.to_bytes(2, "big") + len(parts).to_bytes(2, "big")
    return packet(CONTROL, head + b"".join(parts))


def parse_control(payload: bytes) -> tuple[int, dict[int, bytes]]:
    """Return (message, attributes by number) of a control packet (MS-SSTP section 2.2.2)."""
    if len(payload) < _CONTROL_HEAD_BYTES:
        raise SstpError(f"sent a control packet of {len(payload)} bytes")
    kind, count = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
    attributes, at = {}, _CONTROL_HEAD_BYTES
    for _ in range(count):
        length = int.from_bytes(payload[at + 2 : at + 4], "big") & 0x0FFF
        if length < HEADER_BYTES or at + length > len(payload):
            raise SstpError(f"sent message {kind} with an attribute of {length} bytes")
        attributes[payload[at + 1]] = payload[at + 4 : at + length]
        at += length
    return kind, attributes


def encode_frame(frame: bytes) -> bytes:
    """Return a frame as pppd reads it from a terminal (RFC 1662 sections 3 and 4)."""
    whole = frame + frame_check(frame).to_bytes(2, "little")
    if frame.startswith(_LCP):
        # Before anything is agreed on, every control character is escaped.
        inside = b"".join(
            bytes([0x7D, byte ^ 0x20]) if byte < 0x20 or byte in b"\x7d\x7e" else bytes([byte])  # noqa: PLR2004
            for byte in whole
        )
    else:
        inside = whole.replace(b"\x7d", b"\x7d\x5d").replace(b"\x7e", b"\x7d\x5e")
    return b"\x7e" + inside + b"\x7e"


def decode_frame(raw: bytes) -> bytes:
    """Return what is between two flags without escapes and check; empty if it is damaged."""
    first, *escaped = raw.split(b"\x7d")
    if escaped:
        if not all(escaped):
            return b""
        raw = first + b"".join(bytes([part[0] ^ 0x20]) + part[1:] for part in escaped)
    frame, check = raw[:-2], raw[-2:]
    whole = len(raw) > 2 and int.from_bytes(check, "little") == frame_check(frame)  # noqa: PLR2004
    return frame if whole else b""


def frame_check(frame: bytes) -> int:
    """Return the FCS of RFC 1662 section C.2.

    It is the CRC of ``crc_hqx`` with the bits of every byte, and of the result, in reverse.
    """
    forward = binascii.crc_hqx(frame.translate(_REVERSED), 0xFFFF)
    return (_REVERSED[forward & 0xFF] << 8 | _REVERSED[forward >> 8]) ^ 0xFFFF


def say(line: str) -> None:
    """Write one line of the log, with nothing in it that a terminal would obey."""
    os.write(2, (re.sub(r"[^\x20-\x7e]", "?", line)[:300] + "\n").encode())


_HANDSHAKE_LIMIT_S = 30.0
_PPPD_END_LIMIT_S = 2.0
_MOST_REQUEST_BYTES = 8192
_MOST_FRAME_BYTES = 65536
_MOST_WAITING_BYTES = 1 << 18
_MOST_WAITING_PACKETS = 128
_CONTROL_HEAD_BYTES = 4
# MS-SSTP section 2.2.4: numbers of attributes.
_PROTOCOL_ID, _BINDING, _BINDING_REQUEST = 1, 3, 4
_BINDING_BYTES = 100
_SHA256 = 2
_LCP = b"\xff\x03\xc0\x21"
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
