"""``tunnelmark run --hosts`` over two machines: each with a kernel and a clock of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pytest

from machine_hosts import TwoMachines, two_machines
from tunnelmark.analysis.cpu_cost import cpu_cost
from tunnelmark.analysis.estimates import point_estimates
from tunnelmark.analysis.strata import set_apart
from tunnelmark.engine import records
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.vm_payload import Payload
from tunnelmark.model.block import Stratum
from tunnelmark.store import Result, open_result
from tunnelmark.vmimage.cache import Image

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow, pytest.mark.timing]

FORWARD_NS, REVERSE_NS = 3_000_000, 1_000_000
LINE: Final = LinkSpec(
    Direction(rate_bit_s=None, delay_ns=FORWARD_NS, queue=Queue("bytes", 1 << 20)),
    Direction(rate_bit_s=None, delay_ns=REVERSE_NS, queue=Queue("bytes", 1 << 20)),
    seed=1,
)
FAST_PPM: Final = 40.0
OFF_S: Final = 3
STUDY: Final = """\
format = 1
name = "over-machines"
title = "Two machines"
seed = 7
precision = { min_repeats = 1, max_repeats = 1, bring_ups = 1 }
# Senders on emulated CPUs.
validity = { sender_lateness = "5 ms" }
[[tunnel]]
kind = "wireguard"
label = "wireguard"
implementation = "kernel"
[[tunnel]]
kind = "openvpn"
[[tunnel]]
kind = "ipsec"
label = "ipsec"
implementation = "kernel"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
payload_bytes = 1000
packets = 600
"""
IN_KERNEL: Final = ("ipsec", "wireguard")


@pytest.fixture(scope="module")
def machines(image: Image, payload: Payload) -> Iterator[TwoMachines]:
    with Ledger() as ledger, two_machines(ledger, LINE, image, payload) as made:
        made.server.runs_faster(made.client, FAST_PPM)
        made.server.steps(OFF_S)
        yield made


@dataclass(frozen=True)
class Apart:
    """By how much the server's clock was ahead of the client's, at least and at most, in truth."""

    at_ns: float
    """By the client's clock."""
    least_ns: float
    most_ns: float

    @classmethod
    def now(cls, machines: TwoMachines) -> "Apart":
        """Compare both with the clock of this computer, of which both are independent."""
        at_ns, least_ns, most_ns = machines.client.ahead_ns()
        _, server_least_ns, server_most_ns = machines.server.ahead_ns()
        near_ns = at_ns + (least_ns + most_ns) / 2
        return cls(near_ns, server_least_ns - most_ns, server_most_ns - least_ns)

    def towards(self, later: "Apart", at_ns: float) -> "Apart":
        """Return what it was in between: both clocks run at steady speeds."""
        share = (at_ns - self.at_ns) / (later.at_ns - self.at_ns)
        least, most = (
            first + share * (last - first)
            for first, last in ((self.least_ns, later.least_ns), (self.most_ns, later.most_ns))
        )
        return Apart(at_ns, least, most)

    @property
    def middle_ns(self) -> float:
        return (self.least_ns + self.most_ns) / 2

    @property
    def error_ns(self) -> float:
        return (self.most_ns - self.least_ns) / 2


def as_recorded(directory: Path, samples: list[str]) -> records.Flow:
    """Return a trial's packets with the times of two clocks."""
    names = [directory / "samples" / name for name in samples]
    send, reflect = (
        next(path for path in names if path.name.endswith(end))
        for end in (".send.rec", ".reflect.rec")
    )
    table = records.read_send(send.read_bytes(), send.name)
    far = records.read_reflect(reflect.read_bytes(), reflect.name)
    return records.join(table, far, int(table["flow"].min()))


def test_machines_are_reported_with_what_they_can_run(machines: TwoMachines) -> None:
    before = Apart.now(machines)
    words = ["hosts", "check", str(machines.inventory()), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tunnelmark.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    after = Apart.now(machines)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    tunnels = {one["kind"]: (one["client"], one["server"]) for one in report["tunnels"]}
    # Each kernel was asked, by a trial of its own.
    assert {tunnels[kind] for kind in (*IN_KERNEL, "macsec", "vxlan", "pptp")} == {(None, None)}
    clock = report["line"]["clock"]
    for at, key in enumerate(("start_ns", "end_ns")):
        truth = before.towards(after, clock[key])
        assert clock["least_ns"][at] <= truth.most_ns
        assert truth.least_ns <= clock["most_ns"][at]
    assert machines.client.leftovers() == machines.server.leftovers() == []


def test_tunnels_of_the_kernel_over_two_machines_whose_clocks_differ(
    study: Callable[[str], Any], machines: TwoMachines
) -> None:
    before = Apart.now(machines)
    one = study(STUDY)
    one.start(str(one.file), "--hosts", str(machines.inventory()))
    # NTP finds in mid-trial that the wall clock is wrong: delays are by another.
    one.until(lambda event: event["event"] == "trial_progress")
    machines.server.steps(-OFF_S)
    status = one.finish()
    after = Apart.now(machines)
    assert status == 0, one.errors
    result = open_result(one.directory)
    assert {block.stratum for block in result.blocks.values()} == {Stratum.HOSTS}
    for block in result.blocks.values():
        assert block.error is None
        assert [proof.ok for proof in block.proofs] == [True]
    table = result.trials().filter(pl.col("path") == "total", pl.col("valid"))
    assert set(table["tunnel"]) == {"none", "openvpn", *IN_KERNEL}
    # A line's truth is known better than what is said of it.
    drift_ppm = (after.middle_ns - before.middle_ns) / (after.at_ns - before.at_ns) * 1e6
    assert drift_ppm == pytest.approx(FAST_PPM, abs=25)
    middles = []
    for row in table.iter_rows(named=True):
        (clocks,) = json.loads(row["details"])["clocks"]
        for at, key in enumerate(("start_ns", "end_ns")):
            truth = before.towards(after, clocks[key])
            assert clocks["least_ns"][at] <= truth.most_ns
            assert truth.least_ns <= clocks["most_ns"][at]
        assert clocks["drift_ppm"][0] <= drift_ppm <= clocks["drift_ppm"][1]
        middle = (clocks["start_ns"] + clocks["end_ns"]) / 2
        middles.append((middle, sum(clocks["least_ns"] + clocks["most_ns"]) / 4))
        check_delays(one.directory, row, before.towards(after, middle))
    # Left alone, a clock would be off by as much at the end as the line's delay.
    times, offsets = np.array(middles).T
    slope = np.polynomial.Polynomial.fit(times, offsets, 1).convert().coef[1]
    assert slope * 1e6 == pytest.approx(drift_ppm, abs=15)
    check_costs(result, table)
    assert machines.client.leftovers() == machines.server.leftovers() == []


def check_delays(directory: Path, row: dict[str, Any], truth: Apart) -> None:
    """The one-way delays of a trial are right within what is said of their error."""
    flow = as_recorded(directory, row["samples"])
    came = flow.arrived & flow.answered & flow.returned
    forward_ns = float(np.median((flow.arrived_ns - flow.sent_ns)[came])) - truth.middle_ns
    reverse_ns = float(np.median((flow.returned_ns - flow.answered_ns)[came])) + truth.middle_ns
    # The line is what it was made to be, and the machines add what emulated CPUs do.
    for true_ns, line_ns in ((forward_ns, FORWARD_NS), (reverse_ns, REVERSE_NS)):
        assert -truth.error_ns < true_ns - line_ns < 10e6
    error_ns = row["clock_error_ns"] + truth.error_ns
    assert abs(row["owd_forward_p50_ns"] - forward_ns) <= error_ns
    assert abs(row["owd_reverse_p50_ns"] - reverse_ns) <= error_ns
    # Not more than half of a round trip of the line, which a bound without a drift would be.
    assert row["clock_error_ns"] < row["rtt_p50_ns"]


def check_costs(result: Result, table: pl.DataFrame) -> None:
    """What the kernel does for its tunnels is in no program, and has a cost nevertheless."""
    trials = set_apart(result.trials(), result.blocks.values())
    found = point_estimates(trials, confidence=result.manifest.confidence)
    points = {point.label: point for point in found}
    costs = []
    for tunnel in IN_KERNEL:
        used = cpu_cost(points[tunnel], "cpu_cost_s_per_mpkt")
        assert used.of_programs is None
        assert used.of_machine is not None
        # One trial says nothing of its scatter, which on an emulated CPU is as large as the cost.
        assert used.of_machine.low is None
        costs.append(used.of_machine.value)
    assert max(costs) > 0, costs
    used = cpu_cost(points["openvpn"], "cpu_cost_s_per_mpkt")
    assert used.of_programs is not None
    assert used.of_machine is not None
    assert used.of_programs.value > 0
    of_baseline = table.filter(pl.col("is_baseline"))["cpu_lab_ratio"]
    assert min(of_baseline.to_list()) > 0
