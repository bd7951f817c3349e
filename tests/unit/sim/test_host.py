"""Hosts in virtual time: senders that belong together become one simulation."""

import json
import threading
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tunnelmark.engine.events import parse_event, wait_for
from tunnelmark.model.errors import LabError
from tunnelmark.sim.host import Line, Parts, SimHost, SimProcess
from tunnelmark.sim.simulate import Simulated


class Bench:
    """Both hosts, and a simulator that only tells what it was given."""

    def __init__(self, folder: Path, error: str = "") -> None:
        self.runs: list[dict[str, list[str]]] = []
        self.error = error
        self.line = Line(self.simulate)
        hosts = []
        for name in ("client", "server"):
            (folder / name).mkdir()
            hosts.append(SimHost(name, self.line, folder / name))
        self.client, self.server = hosts

    def simulate(self, parts: Parts) -> Simulated:
        self.runs.append({way: sorted(reported) for way, reported in parts.items()})
        if self.error:
            raise LabError(self.error)
        ways = {
            way: {part: {"event": "summary", "of": f"{way} {part}"} for part in reported}
            for way, reported in parts.items()
        }
        return Simulated(ways, {}, (), 1)

    def start(self, host: SimHost, part: str) -> SimProcess:
        return host.spawn(["/engine", part, "-"], name=part, stdin=b"{}", lines=True)

    def exchange(self, there: SimHost, here: SimHost) -> tuple[Any, Any]:
        reflector = self.start(there, "reflect")
        wait_for(reflector, "ready", limit_s=1.0)
        sender = self.start(here, "send")
        sent = parse_event(sender.read_line(5.0) or "")
        assert reflector.poll() is None
        reflector.stop()
        return sent, parse_event(reflector.read_line(1.0) or "")


def test_one_sender_is_one_simulation_and_the_next_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(2):
        sent, heard = bench.exchange(bench.server, bench.client)
        assert (sent["of"], heard["of"]) == ("forward send", "forward reflect")
    sent, heard = bench.exchange(bench.client, bench.server)
    assert (sent["of"], heard["of"]) == ("reverse send", "reverse reflect")
    assert [list(run) for run in bench.runs] == [["forward"], ["forward"], ["reverse"]]


def test_two_senders_that_start_together_are_one_simulation(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.line.expect(2)
    found: dict[str, Any] = {}

    def run(name: str, there: SimHost, here: SimHost) -> None:
        found[name] = bench.exchange(there, here)

    threads = [
        threading.Thread(target=run, args=("forward", bench.server, bench.client)),
        threading.Thread(target=run, args=("reverse", bench.client, bench.server)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert [set(run) for run in bench.runs] == [{"forward", "reverse"}]
    for way, (sent, heard) in found.items():
        assert (sent["of"], heard["of"]) == (f"{way} send", f"{way} reflect")


def test_a_sender_whose_other_half_never_comes_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.line.expect(2)
    bench.start(bench.server, "reflect")
    sender = bench.start(bench.client, "send")
    with pytest.raises(TimeoutError):
        sender.read_line(0.01)
    sender.stop()
    assert "ended early" in parse_event(sender.read_line(0.01) or "")["message"]
    assert sender.wait(1.0) == 1


def test_what_the_simulator_refuses_is_the_senders_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path, error="paths: number of paths is 0")
    bench.start(bench.server, "reflect")
    sender = bench.start(bench.client, "send")
    event = parse_event(sender.read_line(1.0) or "")
    assert (event["event"], event["message"]) == ("error", "paths: number of paths is 0")
    assert sender.read_line(1.0) is None


def test_a_host_has_files_of_its_own_and_no_programs(tmp_path: Path) -> None:
    host = Bench(tmp_path).client
    file = host.work_dir / "a.rec"
    host.put(file, b"abc")
    assert host.get(file) == b"abc"
    with pytest.raises(LabError, match="more than 2 bytes"):
        host.get(file, limit_bytes=2)
    seen = host.mapped(file)
    host.run(["rm", "-f", str(file)])
    assert bytes(seen) == b"abc", "what is looked at stays"
    host.put(file, b"")
    assert len(host.mapped(file)) == 0
    host.run(["rm", "-f", str(file)])
    with pytest.raises(LabError, match="cannot be read"):
        host.get(file)
    for argv in (["iperf3", "-s"], ["rm", "-rf", "/"], ["rm", "-f", "/etc/passwd"]):
        with pytest.raises(LabError):
            host.run(argv)
    with pytest.raises(LabError, match="has no programs"):
        host.spawn(["iperf3"], name="iperf3", stdin=json.dumps({}).encode())
    with pytest.raises(LabError):
        host.get(PurePosixPath("/etc/passwd"))
    assert host.has("iperf3") is None
    assert not host.has_kernel("tun")
