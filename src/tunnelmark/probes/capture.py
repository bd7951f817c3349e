"""A bounded packet capture, by tcpdump where it can run; read when it has ended."""

import re
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.probes.pcap import MAX_PACKET_BYTES, Frame, OtherFrame, WirePacket, read_pcap

__all__ = ["NEED", "Capture", "Captured", "Frame", "OtherFrame", "WirePacket"]

NEED: Final = Need(programs={"tcpdump": "tcpdump"})
"""What the host that captures must have."""

_START_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.02
_RING_KIB: Final = 8192
_LOG_LINES: Final = 30


class Reader(Protocol):
    """What makes frames of a capture file."""

    def __call__(
        self, data: bytes, *, max_packets: int = ..., place: str = ...
    ) -> tuple[Frame, ...]:
        """Return the frames; ``LabError`` if the file is none or holds too many."""


@dataclass(frozen=True)
class Captured:
    """What went over an interface while it was watched, in both directions."""

    pcap: bytes
    """The file as tcpdump wrote it, to be kept as evidence."""
    frames: tuple[Frame, ...]
    dropped: int
    """Frames the kernel dropped because tcpdump was too slow: then the capture proves nothing."""
    full: bool
    """The limit of packets was reached; more may have followed."""


class Capture:
    """``with Capture(host, "a", name="proof-0") as capture: …; captured = capture.stop()``."""

    def __init__(
        self,
        host: Host,
        interface: str,
        *,
        name: str,
        max_packets: int = 20_000,
        max_frame_bytes: int = 9216,
        read: Reader = read_pcap,
    ) -> None:
        """Prepare to watch ``interface``; the file takes at most ``max_packets`` whole frames.

        ``name`` is that of the file among the captures of the host; frames longer than
        ``max_frame_bytes`` are cut off. ``read`` knows the interface's link layer.
        """
        self._host = host
        self._interface = interface
        # A log may be appended to: what an earlier capture wrote must never count as this one's.
        self._name = unique_name(f"capture-{name}")
        self._max_packets = max_packets
        self._snap_bytes = min(max_frame_bytes, MAX_PACKET_BYTES)
        self._path = host.work_dir / "captures" / f"{name}.pcap"
        self._read = read
        self._program = "tcpdump"
        self._process: Process | None = None

    def __enter__(self) -> Self:
        """Start, and return when tcpdump is listening.

        Raises ``LabError`` with tcpdump's last words if it does not come to that.
        """
        self._host.put(self._path, b"")
        self._process = self._host.spawn(self._command(), name=self._name, env={"LC_ALL": "C"})
        try:
            self._wait_until_listening(self._process)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End tcpdump if ``stop`` did not."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def stop(self) -> Captured:
        """End the capture and return it.

        Call it when the last frame of interest is some milliseconds old. Raises ``LabError`` if
        tcpdump had died before, or its file contradicts what tcpdump says of it.
        """
        process = self._process
        if process is None:
            raise LabError(f"{self._name} on {self._host.name} is not running")
        self._process = None
        status = process.stop()
        log = process.log_tail(_LOG_LINES)
        counts = {what: int(number) for number, what in _COUNT.findall(log)}
        if status != 0 or not {"captured", "dropped by kernel"} <= counts.keys():
            raise LabFailedError(f"{self._place} ended with status {status}: {_last_line(log)}")
        limit = 24 + self._max_packets * (16 + self._snap_bytes)
        pcap = self._host.get(self._path, limit_bytes=limit)
        frames = self._read(pcap, max_packets=self._max_packets, place=self._place)
        if len(frames) != counts["captured"]:
            raise LabFailedError(
                f"{self._place}: {self._program} captured {counts['captured']} packets, "
                f"its file has {len(frames)}"
            )
        full = len(frames) >= self._max_packets
        return Captured(pcap, frames, counts["dropped by kernel"], full)

    def _command(self) -> list[str]:
        limits = (str(self._max_packets), str(self._snap_bytes))
        if _without_groups(self._host):
            self._program = "capture"
            return [
                *(sys.executable, "-m", "tunnelmark.probes.sniff", self._interface),
                *(str(self._path), *limits),
            ]
        if reason := NEED.missing(self._host):
            raise LabError(f"no capture on {self._host.name}: {reason}")
        return [
            *("tcpdump", "-i", self._interface, "-n", "-p", "-U", "--immediate-mode"),
            *("-s", limits[1], "-B", str(_RING_KIB), "-c", limits[0]),
            # Debian's tcpdump would give up root and then could not write its file.
            *("--nano", "-Z", "root", "-w", str(self._path)),
        ]

    @property
    def _place(self) -> str:
        return f"{self._program} on {self._interface} of {self._host.name}"

    def _wait_until_listening(self, process: Process) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while True:
            late = time.monotonic() > deadline
            status = process.poll()
            log = process.log_tail(_LOG_LINES)
            if status is not None:
                raise LabFailedError(f"{self._place} ended with status {status}: {_last_line(log)}")
            if f"listening on {self._interface}," in log:
                return
            if late:
                raise LabFailedError(
                    f"{self._place} is not listening after {_START_LIMIT_S:g} s: {_last_line(log)}"
                )
            time.sleep(_POLL_S)


_COUNT: Final = re.compile(
    r"^(\d{1,12}) packets? (captured|received by filter|dropped by kernel|dropped by interface)$",
    re.MULTILINE,
)


def _without_groups(host: Host) -> bool:
    """Return whether the host is in a user namespace made without root (user_namespaces(7)).

    There tcpdump cannot change its groups and ends; then we are on the same machine.
    """
    done = host.run(["cat", "/proc/self/setgroups"], check=False)
    return done.text().strip() == "deny"


def _last_line(log: str) -> str:
    """Return tcpdump's own last message; libpcap may add a second line that names nothing."""
    lines = log.strip().splitlines()
    own = [line for line in lines if line.startswith("tcpdump: ") and "listening on" not in line]
    return (own or lines or ["nothing in its log"])[-1].removeprefix("tcpdump: ").strip()
