"""Captures at both ends of the link: which of their errors are no more than a reason."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import LocalPlace
from tunnelmark.lab.session.passing import Passed, findings, watching
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.host import Completed, Host
from tunnelmark.model.rules import Probes
from tunnelmark.model.tunnel import Endpoint, TrafficPath
from tunnelmark.probes.capture import Captured
from tunnelmark.probes.pcap import OtherFrame, WirePacket
from tunnelmark.workloads.base import Outcome


def lab(error: Exception) -> Any:
    """A lab on whose hosts no program starts."""

    def spawn(*_: object, **__: object) -> None:
        raise error

    host = SimpleNamespace(
        name="client",
        work_dir=PurePosixPath("/none"),
        put=lambda *_: None,
        run=lambda argv, **_: Completed(tuple(argv), 0, b"deny", b""),
        spawn=spawn,
    )
    place = LocalPlace.__new__(LocalPlace)
    return SimpleNamespace(place=place, clients=(host,), client_host=host, server_host=host)


def test_what_cannot_be_captured_is_a_reason() -> None:
    error = LabFailedError("tcpdump is not listening")
    with watching(lab(error), Probes(capture_packets=10), "trial-1") as passed:
        pass
    assert passed.reason == "tcpdump is not listening"


def test_a_full_disk_is_none() -> None:
    error = UnwritableError("capture.log: cannot be written: No space left on device")
    with (
        pytest.raises(UnwritableError),
        watching(lab(error), Probes(capture_packets=10), "trial-1"),
    ):
        pass


def packet(source: str, destination: str) -> WirePacket:
    return WirePacket(1, 4, 128, 50, source, destination, None, None, None, 0, False, b"")


def per_datagram(
    frames: Sequence[WirePacket | OtherFrame], *paths: TrafficPath, outside: int = 0
) -> float | None:
    """Return the packets on the link for each of two datagrams delivered, and those beside them."""
    ends = {
        name: Endpoint(cast(Host, None), ipv4, ipv6, "eth0", 1500)
        for name, ipv4, ipv6 in (
            ("client", "198.18.0.1", "fd00:7470::1"),
            ("server", "198.18.0.2", "fd00:7470::2"),
        )
    }
    found = findings(
        Passed({end: Captured(b"", tuple(frames), 0, full=False) for end in ends}),
        cast(Lab, SimpleNamespace(**ends)),
        Outcome((), (), 200, 2, 1.0, outside_packets=outside),
        paths=paths,
        proofs=(),
        payload_sizes=(100,),
        samples_dir=None,
    )
    return found.metrics["wire_packets_per_datagram"]


def path(client: str, server: str, link_address: str | None) -> TrafficPath:
    return TrafficPath("0", client, server, "tun0", "tun0", 1400, link_address=link_address)


def test_packets_with_addresses_of_the_path_are_counted() -> None:
    there, back = packet("198.18.0.1", "198.18.0.2"), packet("198.18.0.2", "198.18.0.1")
    assert per_datagram([there, back], path("198.19.0.1", "198.19.0.2", None)) == 1
    # Transport mode: the addresses on the link are those of the datagrams.
    bare = [packet("198.19.0.1", "198.19.0.2"), packet("198.19.0.2", "198.19.0.1")]
    assert per_datagram(bare, path("198.19.0.1", "198.19.0.2", "198.19.0.1")) == 1
    # The second of two clients calls from an address of its own.
    second = [packet("198.18.0.9", "198.18.0.2"), back]
    paths = (path("198.19.0.1", "198.19.0.2", None), path("10.0.0.1", "10.0.0.2", "198.18.0.9"))
    assert per_datagram([there, *second, back], *paths) == 2
    assert per_datagram([there, back, there, back], paths[0], outside=2) == 1


def test_frames_without_an_ip_header_are_not_none_per_datagram() -> None:
    frames = [OtherFrame(1, 0x88E5, "not IP", b"")] * 4
    assert per_datagram(frames, path("198.19.0.1", "198.19.0.2", None)) is None
