"""Known answers: costs that were chosen, simulated, and fitted must come out as they went in."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from made_costs import MODEL
from made_measured import as_measured
from tunnelmark.analysis.fit_result import Measured, fit_result
from tunnelmark.cli import main
from tunnelmark.cli.fit import _measured
from tunnelmark.lab.benchmarks import Goal
from tunnelmark.model.costs import (
    CipherRate,
    CostedTunnel,
    CostModel,
    EndCosts,
    Fitted,
    WorkCosts,
    choose,
    parse_costs,
    to_toml,
)
from tunnelmark.model.tunnel import DataPath

pytestmark = pytest.mark.usefixtures("engine")

STUDY = """\
format = 1
name = "known"
title = "Known"
seed = {seed}
[precision]
metric = "rtt_p50_ns"
min_repeats = 6
max_repeats = 6
bring_ups = 6
[[tunnel]]
kind = "openvpn"
label = "openvpn"
cipher = "AES-256-GCM"
[[link]]
kind = "serial"
label = "line"
rate = "1 Gbit/s"
delay = "1 ms"
queue = "1 MB"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 400
payload_bytes = [64, 1200]
"""
LOADS = """\
[[workload]]
kind = "udp_load"
direction = {direction}
packet_rate = {rates}
duration = "2 s"
payload_bytes = [64, 1200]
"""
CONFIDENCE = 0.99
WORK = ("packet_ns", "byte_ps", "scatter", "most_waiting")


def work(packet_ns: float, byte_ps: float, scatter: float, waiting: float) -> WorkCosts:
    return WorkCosts(*(Fitted(one, one, one) for one in (packet_ns, byte_ps, scatter, waiting)))


# Whoever sends is the slow end.
ONE = replace(
    MODEL,
    tunnel=CostedTunnel("openvpn"),
    client=EndCosts(work(90_000, 40_000, 0.2, 300), work(30_000, 9_000, 0.2, 500)),
    server=EndCosts(work(70_000, 60_000, 0.2, 120), work(40_000, 20_000, 0.2, 500)),
)
# Here whoever receives is, and bytes cost next to nothing.
OTHER = replace(
    MODEL,
    tunnel=CostedTunnel("openvpn"),
    client=EndCosts(work(50_000, 1_000, 0.4, 500), work(120_000, 3_000, 0.4, 200)),
    server=EndCosts(work(60_000, 2_000, 0.4, 500), work(150_000, 1_500, 0.4, 50)),
)


def simulated(tmp_path: Path, costs: CostModel, text: str) -> Measured:
    """Simulate a study and return it as a measured run would look."""
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "given.toml").write_text(to_toml(costs), encoding="utf-8")
    study = tmp_path / "known.toml"
    study.write_text(text, encoding="utf-8")
    results = tmp_path / "results"
    options = ["--backend", "sim", "--costs", str(folder), "--results", str(results), "--quiet"]
    assert main.call(["run", str(study), *options]) == 0
    (directory,) = results.iterdir()
    run = _measured(directory)
    return replace(run, trials=_with_places(run.trials))


def _with_places(trials: pl.DataFrame) -> pl.DataFrame:
    """Add where packets were lost, which a lab has from the kernel's counters."""
    rows = [_places(row) for row in trials.iter_rows(named=True)]
    places = pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.Float64))
    return trials.with_columns(places.get_columns())


def _places(row: dict[str, Any]) -> dict[str, float]:
    (once,) = json.loads(row["details"])["simulated"]
    (ends,) = once["tunnels"]
    found = {}
    for way, sender, receiver in (("forward", "client", "server"), ("reverse", "server", "client")):
        wraps, unwraps = ends.get(f"{sender} wrap"), ends.get(f"{receiver} unwrap")
        sent = max(1, wraps["offered"] if wraps else 1)
        link = once["link"][way]
        found[f"lost_{way}_sender_socket_ratio"] = 0.0
        found[f"lost_{way}_sender_queue_ratio"] = (wraps["dropped"] if wraps else 0) / sent
        found[f"lost_{way}_link_queue_ratio"] = link["queue_dropped"] / sent
        found[f"lost_{way}_link_line_ratio"] = link["lost"] / sent
        found[f"lost_{way}_receiver_ratio"] = (unwraps["dropped"] if unwraps else 0) / sent
    return found


def off(found: WorkCosts, chosen: WorkCosts, names: tuple[str, ...] = WORK) -> list[str]:
    """Return what does not hold the chosen figure in its interval."""
    said = []
    for name in names:
        own, known = getattr(found, name), getattr(chosen, name)
        if own is None or not own.low <= known.estimate <= own.high:
            said.append(f"{name} {own} does not hold {known.estimate}")
    return said


@pytest.mark.parametrize(
    ("chosen", "load"), [(ONE, 14_000), (OTHER, 12_000)], ids=["slow sender", "slow receiver"]
)
def test_the_chosen_costs_come_back(tmp_path: Path, chosen: CostModel, load: int) -> None:
    loads = LOADS.format(direction='["forward", "reverse"]', rates=f"[500, {load}]")
    run = simulated(tmp_path, chosen, STUDY.format(seed=11) + loads)
    fits = fit_result(run, fitted_by="test", confidence=CONFIDENCE, simulated=True)
    assert fits.refused == {}
    (found,) = fits.models.values()
    ends = [(found.client, chosen.client), (found.server, chosen.server)]
    always = ("packet_ns", "byte_ps", "scatter")
    wrong = [
        *(one for own, known in ends for one in off(own.wrap, known.wrap, always)),
        *(one for own, known in ends for one in off(own.unwrap, known.unwrap, always)),
    ]
    assert wrong == []
    # Only an end that was full shows how many packets wait for it.
    slow = ("most_waiting",)
    if chosen is ONE:
        full = [(found.client.wrap, ONE.client.wrap), (found.server.wrap, ONE.server.wrap)]
        idle = [found.client.unwrap, found.server.unwrap]
    else:
        full = [(found.client.unwrap, OTHER.client.unwrap)]
        full += [(found.server.unwrap, OTHER.server.unwrap)]
        idle = [found.client.wrap, found.server.wrap]
    assert [one for own, known in full for one in off(own, known, slow)] == []
    assert [one.most_waiting for one in idle] == [None, None]
    # Intervals that hold everything would hold the chosen figure too.
    for own, _ in full:
        assert own.packet_ns.high - own.packet_ns.low < 0.05 * own.packet_ns.estimate
    # What is written is what a simulation reads, and is meant for this tunnel.
    again = parse_costs(to_toml(found), "made")
    assert again == found
    assert choose([again], run.tunnels["openvpn"], run.devices["host"]) == again


def test_of_echoes_alone_the_costs_of_each_end_are_known_and_not_of_each_way(
    tmp_path: Path,
) -> None:
    run = simulated(tmp_path, ONE, STUDY.format(seed=3))
    fits = fit_result(run, fitted_by="test", confidence=CONFIDENCE, simulated=True)
    assert fits.refused == {}
    (found,) = fits.models.values()
    assert "wrapping and unwrapping taken as alike" in found.provenance.note
    assert found.client.wrap == found.client.unwrap
    # 90 us there and 30 us back; 70 and 40 at the other end.
    assert found.client.wrap.packet_ns.estimate == pytest.approx((90_000 + 30_000) / 2, rel=0.03)
    assert found.server.wrap.packet_ns.estimate == pytest.approx((70_000 + 40_000) / 2, rel=0.03)
    assert found.client.wrap.most_waiting is None


def test_a_result_without_the_cpu_time_of_each_end_is_refused(tmp_path: Path) -> None:
    run = simulated(tmp_path, ONE, STUDY.format(seed=3))
    older = replace(run, trials=run.trials.drop("cpu_tunnel_client_ratio"))
    fits = fit_result(older, fitted_by="test", simulated=True)
    assert fits.refused == {
        "openvpn": "has 0 valid trial(s) of udp_echo or udp_load with CPU of each end, a fit needs "
        "4 or more"
    }


def test_what_was_simulated_is_refused_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulated(tmp_path, ONE, STUDY.format(seed=3))
    output = tmp_path / "costs"
    directory = tmp_path / "results" / run.name
    assert main.call(["fit", str(directory), "--output", str(output)]) == 5
    said = capsys.readouterr().err
    assert "openvpn was simulated, a cost model needs a measured run" in said
    assert not output.exists()


def test_the_command_writes_what_a_simulation_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "results" / simulated(tmp_path, ONE, STUDY.format(seed=3)).name
    as_measured(directory, DataPath.USER_SPACE)
    output = tmp_path / "costs"
    assert main.call(["fit", str(directory), "--output", str(output)]) == 0
    assert "client wrap: " in capsys.readouterr().out
    (file,) = output.iterdir()
    found = parse_costs(file.read_text(encoding="utf-8"), str(file))
    assert found.provenance.stratum == "namespaces"
    assert found.provenance.result == directory.name
    assert main.call(["fit", str(directory), "--output", str(output)]) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err
    assert main.call(["fit", str(directory), "--output", str(output), "--force"]) == 0
    again = ["--backend", "sim", "--costs", str(output), "--results", str(tmp_path / "again")]
    assert main.call(["run", str(tmp_path / "known.toml"), *again, "--quiet"]) == 0


def test_the_command_tells_the_rate_of_the_cipher_or_why_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "results" / simulated(tmp_path, ONE, STUDY.format(seed=3)).name
    as_measured(directory, DataPath.USER_SPACE)
    asked = []

    def unlimited(goal: Goal, _bench: object) -> tuple[float, float]:
        asked.append(goal)
        return 4000.0, 200.0

    monkeypatch.setattr("tunnelmark.lab.rates.unlimited", unlimited)
    words = ["fit", str(directory), "--output", str(tmp_path / "costs"), "--force"]
    # The environment of a simulation names no computer.
    assert main.call(words) == 0
    said = capsys.readouterr().out
    assert "cannot be scaled to devices: measured on another computer (not known" in said
    assert asked == []
    monkeypatch.setattr("tunnelmark.lab.rates.describe", lambda *_: {})
    assert main.call(words) == 0
    assert "4000.0 MB/s, 200.0 MB/s without cipher instructions" in capsys.readouterr().out
    (file,) = (tmp_path / "costs").iterdir()
    found = parse_costs(file.read_text(encoding="utf-8"), str(file))
    assert found.provenance.rate == CipherRate("AES-256-GCM", 4000.0, 200.0)
    assert asked == [Goal("AES-256-GCM")]


def test_each_model_has_its_own_reason_why_it_cannot_be_scaled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = '[[tunnel]]\nkind = "openvpn"\nlabel = "other"\ncipher = "AES-128-GCM"\n'
    text = STUDY.format(seed=3).replace("[[tunnel]]\n", f"{other}[[tunnel]]\n", 1)
    directory = tmp_path / "results" / simulated(tmp_path, ONE, text).name
    as_measured(directory, DataPath.USER_SPACE)
    monkeypatch.setattr("tunnelmark.lab.rates.unlimited", lambda *_: (4000.0, 200.0))
    monkeypatch.setattr("tunnelmark.lab.rates.describe", lambda *_: {})
    assert main.call(["fit", str(directory), "--output", str(tmp_path / "costs")]) == 0
    said = capsys.readouterr().out
    assert said.count("cannot be scaled to devices: no device has a rate of AES-128-GCM") == 1
    assert said.count("can be scaled to devices") == 1


def test_a_tunnel_of_the_kernel_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "results" / simulated(tmp_path, ONE, STUDY.format(seed=3)).name
    as_measured(directory, DataPath.KERNEL)
    assert main.call(["fit", str(directory), "--output", str(tmp_path / "costs")]) == 5
    said = capsys.readouterr().err
    assert "nothing can be fitted: openvpn does its work outside its own processes" in said
    assert "data path: kernel" in said


def test_too_few_bring_ups_are_refused(tmp_path: Path) -> None:
    run = simulated(tmp_path, ONE, STUDY.format(seed=3))
    once = replace(run, trials=run.trials.filter(pl.col("bring_up") == 1))
    fits = fit_result(once, fitted_by="test", simulated=True)
    assert fits.models == {}
    assert fits.refused == {
        "openvpn": "has 2 valid trial(s) of udp_echo or udp_load with CPU of "
        "each end, a fit needs 4 or more"
    }
    size = run.trials["param_payload_bytes"].max()
    same = replace(run, trials=run.trials.filter(pl.col("param_payload_bytes") == size))
    fits = fit_result(same, fitted_by="test", simulated=True)
    assert fits.refused == {
        "openvpn": "has 1 payload size(s) in such trials, a fit needs 2 or more"
    }
