"""Our own capture, inside a user namespace as it is made without root, on its loopback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tunnelmark.probes.pcap import WirePacket, read_pcap

UNSHARE = ("unshare", "--user", "--map-root-user", "--net")
# Starts the capture, waits until it listens, sends datagrams, ends it, and shows what it said.
SCRIPT = """
import os, socket, subprocess, sys, time
file, limit, snap, count, size = sys.argv[1], *map(int, sys.argv[2:])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
sniff = [sys.executable, "-m", "tunnelmark.probes.sniff", "lo", file, str(limit), str(snap)]
process = subprocess.Popen(sniff, stderr=subprocess.PIPE, text=True)
first = process.stderr.readline()
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(("127.0.0.1", 7790))
for number in range(count):
    sender.sendto(bytes([number]) * size, ("127.0.0.1", 7790))
if count < limit:
    process.terminate()
print(first + process.stderr.read(), end="")
sys.exit(process.wait())
"""


def sniff(file: Path, *, limit: int, snap: int, count: int, size: int) -> str:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("user namespaces are not allowed here")
    words = [str(number) for number in (limit, snap, count, size)]
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", SCRIPT, str(file), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_datagram_is_captured_whole_in_both_directions(tmp_path: Path) -> None:
    said = sniff(tmp_path / "x.pcap", limit=1000, snap=2000, count=20, size=300)
    frames = read_pcap((tmp_path / "x.pcap").read_bytes())
    packets = [f for f in frames if isinstance(f, WirePacket) and f.destination_port == 7790]
    # Loopback shows each packet twice: as it leaves and as it arrives.
    assert [p.payload for p in packets[::2]] == [bytes([n]) * 300 for n in range(20)]
    assert len(packets) == 40
    assert [p.time_ns for p in packets] == sorted(p.time_ns for p in packets)
    lines = said.splitlines()
    assert lines[0].startswith("listening on lo, ")
    assert lines[1:] == [
        f"{len(frames)} packets captured",
        f"{len(frames)} packets received by filter",
        "0 packets dropped by kernel",
    ]


def test_the_limit_of_packets_ends_it(tmp_path: Path) -> None:
    said = sniff(tmp_path / "x.pcap", limit=5, snap=2000, count=20, size=10)
    assert len(read_pcap((tmp_path / "x.pcap").read_bytes())) == 5
    assert "5 packets captured\n" in said


def test_a_longer_frame_is_cut_off_and_says_so(tmp_path: Path) -> None:
    sniff(tmp_path / "x.pcap", limit=100, snap=60, count=1, size=500)
    frames = read_pcap((tmp_path / "x.pcap").read_bytes())
    # A packet that is not whole is no packet: the proof counts it as foreign.
    assert not any(isinstance(frame, WirePacket) for frame in frames)
    assert {frame.reason for frame in frames if not isinstance(frame, WirePacket)} == {
        "IPv4 length 528, 46 bytes captured"
    }


def test_an_interface_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    words = ["-m", "tunnelmark.probes.sniff", "no0", str(tmp_path / "x"), "1", "99"]
    done = subprocess.run(
        [*UNSHARE, sys.executable, *words], capture_output=True, text=True, check=False, timeout=60
    )
    if "unshare" in done.stderr:
        pytest.skip("user namespaces are not allowed here")
    assert (done.returncode, done.stderr) == (1, "no0: No such device\n")
