"""``tunnelmark run --hosts``: a study over two hosts, and what becomes of it when one is lost."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from processes import command_line, command_lines
from small_study import LOOSE_VALIDITY
from ssh_hosts import FakeHost, TwoHosts, two_hosts
from tunnelmark.engine import records
from tunnelmark.hosts.ssh import SILENCE_VARIABLE
from tunnelmark.model.block import Stratum
from tunnelmark.store import open_result

pytestmark = [
    pytest.mark.xdist_group("runs"),
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces stand for hosts"),
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs openssh-server"),
]
# What is held to figures here is the same on a busy computer.
STUDY = (
    """\
format = 1
name = "over-hosts"
title = "Two hosts"
seed = 7
precision = {{ min_repeats = {repeats}, max_repeats = {repeats}, bring_ups = 1 }}
{more}
[[workload]]
kind = "udp_echo"
gap = "5 ms"
payload_bytes = 200
packets = {packets}
"""
    + LOOSE_VALIDITY
)
TUNNELS = """
[[tunnel]]
kind = "wireguard"
implementation = "wireguard-go"
[[tunnel]]
kind = "openvpn"
[[tunnel]]
kind = "openvpn"
label = "openvpn-tcp"
transport = "tcp"
congestion = "reno"
mss_clamp = 1300
"""
SERIAL = """
[[link]]
kind = "serial"
label = "slow"
rate = "8 Mbit/s"
delay = "10 ms"
"""


AHEAD_NS = 3 * 10**9


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    with two_hosts(server_ahead_s=3) as made:
        yield made


def raw_delay_ns(directory: Path, samples: list[str]) -> float:
    """Median forward one-way delay of a trial's packets by two clocks, as they were recorded."""
    names = [directory / "samples" / name for name in samples]
    send, reflect = (
        next(path for path in names if path.name.endswith(end))
        for end in (".send.rec", ".reflect.rec")
    )
    table = records.read_send(send.read_bytes(), send.name)
    flow = records.join(
        table, records.read_reflect(reflect.read_bytes(), reflect.name), int(table["flow"].min())
    )
    return float(np.median(flow.owd_forward_ns[flow.arrived]))


def nothing_stays(hosts: TwoHosts) -> bool:
    return nothing_stays_on(hosts.client, hosts.server)


def nothing_stays_on(*hosts: FakeHost, limit_s: float = 30.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not any(host.leftovers() for host in hosts):
            return True
        time.sleep(0.1)
    return False


def ssh_of(run: "subprocess.Popen[str]") -> list[int]:
    """Process ids of the run's connections."""
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text("ascii").split()
    return [int(pid) for pid in children if command_line(pid).startswith(b"ssh\0")]


def test_tunnels_are_measured_over_the_line_as_it_is(
    study: Callable[[str], Any], hosts: TwoHosts
) -> None:
    for host in (hosts.client, hosts.server):
        # No Python is needed there, of whatever age.
        for python in (*Path("/usr/bin").glob("python*"), *Path("/usr/local/bin").glob("python*")):
            if not python.is_symlink():
                host.run("mount", "--bind", "/dev/null", str(python))
    one = study(STUDY.format(repeats=1, more=TUNNELS, packets=200))
    one.run(str(one.file), "--hosts", str(hosts.inventory()))
    # On a busy computer a trial may be invalid and is repeated.
    done = {trial["tunnel"] for trial in one.of("trial_done") if trial["valid"]}
    assert done == {"none", "openvpn", "openvpn-tcp", "wireguard-wireguard-go"}
    result = open_result(one.directory)
    assert {block.stratum for block in result.blocks.values()} == {Stratum.HOSTS}
    assert {block.link for block in result.blocks.values()} == {"line"}
    agreed = {}
    for block in result.blocks.values():
        assert [proof.ok for proof in block.proofs] == [True]
        (agreed[block.tunnel],) = block.negotiated
    # Both are set in the ends' namespaces, and the hosts themselves are left alone.
    own = {
        name: agreed["openvpn-tcp"].details[name] for name in ("carrier_congestion", "mss_clamp")
    }
    assert own == {"carrier_congestion": "reno", "mss_clamp": "1300"}
    assert result.manifest.environment["hosts attached by"] == "client macvlan, server macvlan"
    table = result.trials().filter(pl.col("path") == "total", pl.col("valid"))
    # In truth it is one kernel's clock: what the records say, less the offset, is the truth.
    for row in table.iter_rows(named=True):
        (clocks,) = json.loads(row["details"])["clocks"]
        assert max(clocks["least_ns"]) <= AHEAD_NS <= min(clocks["most_ns"])
        true_ns = raw_delay_ns(one.directory, row["samples"]) - AHEAD_NS
        assert 0 < row["clock_error_ns"] < 2 * row["rtt_p50_ns"]
        assert abs(row["owd_forward_p50_ns"] - true_ns) <= row["clock_error_ns"]
    # The tunnel's programs run over there, and what they used was read.
    tunnels = table.filter(~pl.col("is_baseline"))
    assert min(tunnels["cpu_tunnel_ratio"].to_list()) > 0
    assert nothing_stays(hosts)


def test_a_link_is_emulated_on_the_client(study: Callable[[str], Any], hosts: TwoHosts) -> None:
    hosts.route()
    one = study(STUDY.format(repeats=1, more=SERIAL, packets=100))
    one.run(str(one.file), "--hosts", str(hosts.inventory(attach='"routed"')))
    trial = one.of("trial_done")[-1]
    assert trial["valid"], trial
    # 10 ms each way, and 228 bytes at 8 Mbit/s each way.
    assert trial["figures"]["rtt_p50_ns"] > 20.4e6
    assert nothing_stays(hosts)


def test_what_a_firewall_drops_is_said_before_the_first_trial(
    study: Callable[[str], Any], hosts: TwoHosts
) -> None:
    hosts.route()
    for rule in (("udp", "dport", "1194"), ("udp", "sport", "1195")):
        hosts.server.run("ip", "rule", "add", "ipproto", *rule, "type", "blackhole")
    one = study(STUDY.format(repeats=1, more="", packets=100))
    inventory = hosts.inventory(attach='"routed"', ports="[1194, 1195, 1196]")
    one.run(str(one.file), "--hosts", str(inventory))
    where = "tunnelmark: UDP to server 192.0.2.12 port"
    assert f"{where} 1194 does not arrive" in one.errors
    assert f"{where} 1195 arrives, but replies do not return" in one.errors
    assert "1196" not in one.errors
    assert nothing_stays(hosts)


def kill_ssh(run: "subprocess.Popen[str]", _hosts: TwoHosts) -> None:
    os.kill(ssh_of(run)[0], signal.SIGKILL)


def kill_agent(_run: "subprocess.Popen[str]", hosts: TwoHosts) -> None:
    for pid in hosts.server.processes("tunnelmark-agent stdio"):
        hosts.server.run("sh", "-c", f"kill -9 {pid} 2>/dev/null || true")


def reboot(_run: "subprocess.Popen[str]", hosts: TwoHosts) -> None:
    hosts.server.reboot()


def entered(config: Path) -> list[int]:
    """Process ids of the programs here that started an sshd of this configuration."""
    split = {pid: words.split(b"\0") for pid, words in command_lines().items()}
    return [
        pid
        for pid, words in split.items()
        if words[0] == b"nsenter" and str(config).encode() in words
    ]


def lose_the_route(_run: "subprocess.Popen[str]", hosts: TwoHosts) -> None:
    """Nothing passes any more, of the line or of the connection, until the watchdog has bitten."""
    held = hosts.server.processes("sshd")
    hosts.server.run("kill", "-STOP", *map(str, held))
    hosts.server.cut()
    try:
        assert nothing_stays_on(hosts.server)
    finally:
        hosts.server.join()
        hosts.server.run("sh", "-c", f"kill -9 {' '.join(map(str, held))} 2>/dev/null || true")
        # What entered the host for sshd stopped with it, and would stay so.
        for pid in entered(hosts.folder / "server.sshd"):
            os.kill(pid, signal.SIGCONT)


def in_a_second_trial(
    study: Callable[[str], Any], hosts: TwoHosts, *, silence_s: int
) -> tuple[Any, "subprocess.Popen[str]"]:
    """Start a run, and return it when it has a valid trial and another one under way."""
    one = study(STUDY.format(repeats=2, more="", packets=400))
    one.environment[SILENCE_VARIABLE] = str(silence_s)
    run = one.start(str(one.file), "--hosts", str(hosts.inventory()))
    one.until(lambda event: event["event"] == "trial_done" and event["valid"])
    one.until(lambda event: event["event"] == "trial_progress")
    return one, run


@pytest.mark.parametrize("lose", [kill_ssh, kill_agent, reboot, lose_the_route])
def test_a_run_goes_on_when_a_host_was_lost(
    lose: Callable[["subprocess.Popen[str]", TwoHosts], None],
    study: Callable[[str], Any],
    hosts: TwoHosts,
) -> None:
    one, run = in_a_second_trial(study, hosts, silence_s=8)
    lose(run, hosts)
    assert one.finish() == 0, one.errors
    trials = one.of("trial_done")
    # What was measured before stays: it is not measured again.
    assert sorted(trial["repeat"] for trial in trials if trial["valid"]) == [1, 2]
    assert [trial["valid"] for trial in trials].count(False) >= 1
    assert "Traceback" not in one.errors
    assert nothing_stays(hosts)


def test_a_run_waits_for_what_only_this_side_knows_to_be_lost(
    study: Callable[[str], Any], hosts: TwoHosts
) -> None:
    one, run = in_a_second_trial(study, hosts, silence_s=20)
    # There the connection stands until it has been silent for too long: its address and interface
    # are taken until then.
    held = " ".join(map(str, hosts.server.processes("sshd")))
    hosts.server.run("sh", "-c", f"kill -STOP {held}; (sleep 40; kill -9 {held}) >/dev/null 2>&1 &")
    for connection in ssh_of(run):
        os.kill(connection, signal.SIGKILL)
    assert one.finish() == 0, one.errors
    assert sorted(trial["repeat"] for trial in one.of("trial_done") if trial["valid"]) == [1, 2]
    assert "waiting for the hosts: server: what the lost connection has there" in one.errors
    assert nothing_stays(hosts)


def test_a_run_goes_on_when_there_is_room_on_a_host_s_disk_again(
    study: Callable[[str], Any], hosts: TwoHosts
) -> None:
    inventory = str(hosts.inventory())
    hosts.server.run("mount", "-o", "remount,size=32m", "/tmp")  # noqa: S108
    one = study(STUDY.format(repeats=3, more="", packets=400))
    one.start(str(one.file), "--hosts", inventory)
    one.until(lambda event: event["event"] == "trial_done" and event["valid"])
    hosts.server.run("sh", "-c", "cat /dev/zero >/tmp/full 2>/dev/null || true")
    failed = one.until(lambda event: event["event"] == "trial_done" and not event["valid"])
    assert "No space left on device" in " ".join(failed["reasons"])
    hosts.server.run("rm", "/tmp/full")  # noqa: S108
    assert one.finish() == 0, one.errors
    assert sorted(t["repeat"] for t in one.of("trial_done") if t["valid"]) == [1, 2, 3]
    assert "Traceback" not in one.errors
    assert nothing_stays(hosts)


def test_a_killed_run_leaves_nothing_on_the_hosts_and_is_resumed(
    study: Callable[[str], Any], hosts: TwoHosts
) -> None:
    inventory = str(hosts.inventory())
    one = study(STUDY.format(repeats=2, more="", packets=400))
    one.start(str(one.file), "--hosts", inventory)
    one.until(lambda event: event["event"] == "trial_done")
    one.kill()
    assert nothing_stays(hosts)
    one.start("--resume", str(one.directory))
    assert one.finish() == 2
    assert "was started on real hosts: give --hosts" in one.errors
    one.run("--resume", str(one.directory), "--hosts", inventory)
    assert [trial["valid"] for trial in one.of("trial_done")].count(True) == 2
    assert nothing_stays(hosts)


def test_a_study_that_would_send_more_is_refused_before_anything_is_connected(
    study: Callable[[str], Any], hosts: TwoHosts
) -> None:
    one = study(STUDY.format(repeats=1, more="", packets=100))
    inventory = hosts.inventory(extra='max_rate = "100 kbit/s"')
    (hosts.folder / "ssh_config").write_text("Host *\n  ProxyCommand false\n", encoding="ascii")
    one.start(str(one.file), "--hosts", str(inventory))
    assert one.finish() == 2
    assert "sends 0.64 Mbit/s over link line, max_rate is 0.1 Mbit/s" in one.errors
    assert one.events == []
