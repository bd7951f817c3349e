"""Every workload against its base; with root, over a real pair of hosts."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.errors import LabError
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.params import Params
from tunnelmark.model.topology import CLIENT_IPV4, SERVER_IPV4, Topology
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads.base import Progress, TrialContext, Workload
from tunnelmark.workloads.registry import workload_kinds

KINDS = sorted(workload_kinds())
SHORT: dict[str, dict[str, object]] = {
    "udp_echo": {"gap": "2 ms", "packets": 100, "payload_bytes": 200, "drain": "300 ms"},
}
"""A short trial of each kind; a workload without one fails here."""


def _workload(kind: str, **changes: object) -> Workload:
    driver = workload_kinds()[kind]
    return driver(driver.params_type.model_validate({**SHORT[kind], **changes}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_says_what_it_is(kind: str) -> None:
    driver = workload_kinds()[kind]
    assert driver.kind == kind
    assert driver.title
    assert issubclass(driver.params_type, Params)
    assert driver.params_type.model_config["extra"] == "forbid"
    assert set(driver.metrics) <= set(METRICS)
    for name, field in driver.params_type.model_fields.items():
        assert field.description, f"{kind}.{name} has no description"
    assert _workload(kind).expected_s > 0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces are made")
    try:
        engine = find_engine()
    except LabError as error:
        pytest.skip(str(error))
    root = tmp_path / "runtime"
    root.mkdir(mode=0o700)
    with Ledger(root) as ledger, Lab(ledger, Topology(), None, engine=engine) as made:
        yield made


def _context(lab: Lab, folder: Path | None, **changes: Any) -> TrialContext:
    path = TrafficPath("0", CLIENT_IPV4, SERVER_IPV4, "eth0", "eth0", 1500)
    values: dict[str, Any] = {
        "client": lab.client.host,
        "server": lab.server.host,
        "paths": (path,),
        "engine": find_engine(),
        "seed": 7,
        "samples_dir": folder,
        "sample_stem": "contract-1",
        "progress": lambda _progress: None,
        "cancelled": lambda: False,
    }
    return TrialContext(**{**values, **changes})


@pytest.mark.lab
@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_gives_its_metrics_evidence_and_samples(
    kind: str, lab: Lab, tmp_path: Path
) -> None:
    seen: list[Progress] = []
    measuring: list[int] = []
    context = _context(
        lab,
        tmp_path,
        progress=seen.append,
        measuring_processes=lambda _host, pid: measuring.append(pid),
    )
    workload = _workload(kind)
    outcome = workload.run(context)
    assert [m.path for m in outcome.measurements] == ["total", "0"]
    assert set(outcome.measurements[0].metrics) >= set(workload.metrics)
    assert outcome.checks
    names = [check.name for check in outcome.checks]
    assert len(set(names)) == len(names)
    # lateness is the machine's; everything else must hold on a direct link
    assert [c.message for c in outcome.checks if not c.ok and c.name != "sender_lateness"] == []
    assert outcome.payload_packets > 0
    assert outcome.measuring_s > 0
    assert measuring
    assert all((tmp_path / name).stat().st_size > 64 for name in outcome.samples)
    assert outcome.samples
    # nothing of the trial stays on the hosts
    assert not list(Path(lab.client.host.work_dir).glob("*.rec"))


@pytest.mark.lab
@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_far_end_is_a_failed_check_and_no_exception(kind: str, lab: Lab) -> None:
    lab.server.host.run(["ip", "link", "set", "dev", "eth0", "down"])
    outcome = _workload(kind).run(_context(lab, None))
    failed = [check for check in outcome.checks if not check.ok]
    lost = outcome.measurements and outcome.measurements[0].metrics["loss_forward_ratio"] == 1.0
    assert failed or lost


@pytest.mark.lab
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_trial_ends_early_and_says_so(kind: str, lab: Lab) -> None:
    workload = _workload(kind, packets=100_000)
    outcome = workload.run(_context(lab, None, cancelled=lambda: True))
    assert any(not check.ok for check in outcome.checks)
