"""`tunnelmark run --backend sim`: whole studies in virtual time, without root."""

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from made_costs import MODEL
from made_simulated import OF_THE_RUN
from tunnelmark.cli import main
from tunnelmark.model.costs import CostedTunnel, EndCosts, Fitted, WorkCosts, to_toml
from tunnelmark.sim import session
from tunnelmark.store import Result, Writer, open_result
from tunnelmark.store.remote import Sender

pytestmark = pytest.mark.usefixtures("engine")

# What belongs to a run and not to what it came to.
HEAD = """\
format = 1
name = "made"
title = "Made"
[precision]
metric = "rtt_p50_ns"
min_repeats = 4
max_repeats = 4
bring_ups = 1
"""
SERIAL = """\
[[link]]
kind = "serial"
label = "line"
rate = "8 Mbit/s"
delay = "10 ms"
"""
OPENVPN = '[[tunnel]]\nkind = "openvpn"\nlabel = "openvpn"\ncipher = "AES-256-GCM"\n'
MS = 1_000_000


def run(folder: Path, *arguments: str, status: int = 0) -> Result:
    """Run a study and return the only result."""
    folder.mkdir()
    found = main.call(["run", *arguments, "--backend", "sim", "--results", str(folder), "--quiet"])
    assert found == status
    (directory,) = folder.iterdir()
    return open_result(directory)


def totals(result: Result) -> pl.DataFrame:
    return result.trials().filter(pl.col("path") == "total")


def made(tmp_path: Path, *parts: str) -> str:
    file = tmp_path / "made.toml"
    file.write_text(HEAD + "\n".join(parts), encoding="utf-8")
    return str(file)


def test_quickstart_is_what_the_line_and_the_packets_make_of_it(tmp_path: Path) -> None:
    result = run(tmp_path / "results", "quickstart", "--no-costs")
    trials = totals(result)
    assert trials["valid"].all()
    assert set(trials["stratum"]) == {"simulation"}
    assert trials.filter(pl.col("tunnel") == "wireguard").height == 4 * 5
    assert not result.manifest.skipped
    # Calls are counted beside 6 Mbit/s of other traffic, of 8: what G.711 needs of the rest.
    calls = trials.filter(pl.col("workload_kind") == "voip_capacity")
    assert set(calls["tunnel"]) == {"none", "openvpn", "wireguard"}
    for row in calls.iter_rows(named=True):
        assert 10 < row["voip_calls"] < 26
        assert row["background_bit_s"] == pytest.approx(6e6, rel=0.15)
    # What arrives of more than the line carries: the line, less the headers.
    for row in trials.filter(pl.col("workload_kind") == "udp_load").iter_rows(named=True):
        share = row["param_payload_bytes"] / (row["param_payload_bytes"] + row["overhead_bytes"])
        assert row["goodput_bit_s"] == pytest.approx(8e6 * share, rel=0.01)
    # 41 ms of the line, and every byte at 8 Mbit/s there and back.
    for row in trials.filter(pl.col("workload_kind") == "udp_echo").iter_rows(named=True):
        bytes_on_link = row["overhead_bytes"] + row["param_payload_bytes"]
        cut = row["outer_packets"] > 1
        expected = 41 * MS + 2 * bytes_on_link * 1000
        assert row["rtt_p50_ns"] == pytest.approx(expected, rel=0.02 if cut else 1e-4)
        assert row["cpu_tunnel_ratio"] is None
        assert row["loss_forward_ratio"] == row["loss_reverse_ratio"] == 0
    points = {
        block.tunnel: block.proofs[0].fragmentation_point_bytes for block in result.blocks.values()
    }
    assert points == {"openvpn": 1420, "wireguard": 1392}
    report = (result.directory / "report" / "report.html").read_text(encoding="utf-8")
    assert "wireguard (simulated)" in report
    reported = re.search("([a-z0-9-]+) and ([a-z0-9-]+): no cost model, so CPU work takes", report)
    assert reported is not None
    assert set(reported.groups()) == set(points)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    lossy = SERIAL + 'loss_forward = "5 %"\ndelay_variation = "2 ms"\n'
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 100\npayload_bytes = 500\n'
    both = '[[workload]]\nkind = "udp_load"\npacket_rate = 500\nduration = "1 s"\n'
    study = made(tmp_path, OPENVPN, lossy, echo, both + 'direction = "both"\npayload_bytes = 500\n')
    found = []
    for number, seed in enumerate(("1", "1", "2")):
        result = run(tmp_path / f"results{number}", study, "--seed", seed)
        rows = result.trials().drop(OF_THE_RUN).sort("trial_id", "path")
        samples = {path.name: path.read_bytes() for path in result.directory.glob("samples/*")}
        found.append((rows, samples))
        assert rows.height == 4 * 2 * (2 + 2)
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]
    assert len(found[0][1]) == 4 * 2 * (2 + 4)
    assert not found[0][0]["loss_forward_ratio"].equals(found[2][0]["loss_forward_ratio"])


def test_both_ways_share_the_tunnel_and_each_has_its_rate(tmp_path: Path) -> None:
    load = '[[workload]]\nkind = "udp_load"\npacket_rate = 2000\ndirection = "both"\n'
    load += 'duration = "2 s"\n'
    result = run(tmp_path / "results", made(tmp_path, SERIAL, load + "payload_bytes = 972\n"))
    for row in totals(result).iter_rows(named=True):
        for way in ("goodput_bit_s", "goodput_reverse_bit_s"):
            assert row[way] == pytest.approx(8e6 * 972 / 1000, rel=0.02)
        assert row["wire_forward_bit_s"] == pytest.approx(8e6, rel=0.02)


def test_a_cost_model_is_the_time_and_the_cpu_of_the_tunnel(tmp_path: Path) -> None:
    costs = tmp_path / "costs"
    costs.mkdir()
    (costs / "openvpn.toml").write_text(_plain_costs(), encoding="utf-8")
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 200\npayload_bytes = 972\n'
    load = '[[workload]]\nkind = "udp_load"\npacket_rate = 6000\nduration = "2 s"\n'
    fast = SERIAL.replace("8 Mbit/s", "1 Gbit/s")
    study = made(tmp_path, OPENVPN, fast, echo, load + "payload_bytes = 972\n")
    result = run(tmp_path / "results", study, "--costs", str(costs))
    trials = totals(result).filter(pl.col("tunnel") == "openvpn")
    # 300 us a packet at each of both ends, on the way there and on the way back.
    (rtt,) = set(trials.filter(pl.col("workload_kind") == "udp_echo")["rtt_p50_ns"])
    bare = totals(result).filter(
        (pl.col("tunnel") == "none") & (pl.col("workload_kind") == "udp_echo")
    )
    assert rtt - bare["rtt_p50_ns"][0] == pytest.approx(4 * 300_000, rel=0.01)
    for row in trials.iter_rows(named=True):
        if row["workload_kind"] == "udp_echo":
            # Four pieces of work of 300 us every 5 ms.
            assert row["cpu_tunnel_ratio"] == pytest.approx(4 * 0.3 / 5, rel=0.02)
            continue
        # An end works on 1 / 300 us = 3333 packets a second; of 6000 the rest is dropped.
        assert row["received_forward_packet_s"] == pytest.approx(1e6 / 300, rel=0.02)
        assert row["cpu_tunnel_thread_max_ratio"] == pytest.approx(1.0, abs=0.02)
        assert row["cpu_cost_s_per_mpkt"] == pytest.approx(600, rel=0.1)
    (block,) = result.blocks.values()
    assert block.notes == ()
    assert "OpenVPN 2.6.14" in block.negotiated[0].version
    assert "costs of openvpn" in result.manifest.environment


def _plain_costs(packet_ns: float = 300_000.0) -> str:
    """So long for a packet whatever its length, no scatter, for every OpenVPN."""

    def exactly(value: float) -> Fitted:
        return Fitted(value, value, value)

    work = WorkCosts(exactly(packet_ns), exactly(0.0), None, exactly(100.0))
    end = EndCosts(work, work)
    return to_toml(replace(MODEL, tunnel=CostedTunnel("openvpn"), client=end, server=end))


PI = '[[device]]\nkind = "pi-b"\nlabel = "pi-b"\ncalibrate = "AES-256-GCM"\n'
PI_RATE = 5.2
"""MB/s of AES-256-GCM on it."""


def saturated(tmp_path: Path, name: str, *parts: str, costs: str = "") -> pl.DataFrame:
    """Return the trials of a tunnel that is offered far more than a slow device can do."""
    fast = SERIAL.replace("8 Mbit/s", "1 Gbit/s")
    load = '[[workload]]\nkind = "udp_load"\npacket_rate = 9000\nduration = "2 s"\n'
    study = made(tmp_path, *parts, fast, load + "payload_bytes = 1172\n")
    words = ["--no-costs"]
    if costs:
        folder = tmp_path / f"costs-{name}"
        folder.mkdir()
        (folder / "openvpn.toml").write_text(costs, encoding="utf-8")
        words = ["--costs", str(folder)]
    result = run(tmp_path / name, study, *words)
    (block,) = result.blocks.values()
    trials = totals(result).filter(~pl.col("is_baseline"))
    assert trials["valid"].all()
    return trials.with_columns(notes=pl.lit("; ".join(block.notes)))


def test_a_device_without_a_fit_does_what_its_cipher_alone_can(tmp_path: Path) -> None:
    trials = saturated(tmp_path, "results", OPENVPN, PI)
    (rate,) = set(trials["received_forward_packet_s"])
    # A packet of 1200 bytes inside at the published rate, and nothing else.
    assert rate == pytest.approx(PI_RATE * 1e6 / 1200, rel=0.01)
    assert trials["cpu_device_client_ratio"].to_list() == pytest.approx([1.0] * 4, abs=0.01)
    # What the server's end costs is not known: neither are both together.
    assert trials["cpu_tunnel_ratio"].is_null().all()
    assert "work of the cipher alone on pi-b" in trials["notes"][0]
    assert "AES-256-GCM 5.2 MB/s, AES-256-CBC x 0.43, an estimate" in trials["notes"][0]


def test_verdicts_say_that_work_was_a_lower_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ('"10 Mbit/s"\n', '"1 byte"\n')
    claims = [
        f'[[hypothesis]]\nname = "h{place}"\nclaim = "c"\nkind = "threshold"\nmetric = "{metric}"\n'
        f'where = {{ tunnel = "openvpn" }}\nat_least = {value}'
        for place, (metric, value) in enumerate(
            zip(("goodput_bit_s", "fragmentation_point_bytes"), words, strict=True)
        )
    ]
    saturated(tmp_path, "slow", OPENVPN, PI, *claims)
    saturated(tmp_path, "fast", OPENVPN, *claims)
    reported = []
    for name in ("slow", "fast"):
        (directory,) = (tmp_path / name).iterdir()
        capsys.readouterr()
        assert main.call(["report", str(directory), "--format", "json"]) == 0
        reported.append([one["reason"] for one in json.loads(capsys.readouterr().out)["verdicts"]])
    assert [["cipher alone" in reason for reason in one] for one in reported] == [
        [True, False],
        [False, False],
    ]


def test_tunnels_of_a_device_share_its_core_and_those_of_a_host_do_not(tmp_path: Path) -> None:
    three = OPENVPN + "count = 3\n"
    one, together = (
        saturated(tmp_path, name, tunnel, PI)["received_forward_packet_s"].to_list()
        for name, tunnel in (("one", OPENVPN), ("three", three))
    )
    assert together == pytest.approx(one, rel=0.02)
    # At 300 us a packet one core has 3333 of the 9000 packets a second, and three have them all.
    alone = saturated(tmp_path, "host", three, costs=_plain_costs())
    assert alone["received_forward_packet_s"].to_list() == pytest.approx([9e3] * 4, rel=0.001)
    assert "3 tunnels, each with a CPU of its own at both ends" in alone["notes"][0]


def test_a_fit_on_a_host_is_scaled_by_the_rate_of_the_cipher(tmp_path: Path) -> None:
    plain = 'rate = {cipher = "AES-256-GCM", mbyte_s = 2000.0, plain_mbyte_s = 52.0}\n'
    costs = _plain_costs(packet_ns=30_000.0).replace("trials = 40\n", f"trials = 40\n{plain}")
    trials = saturated(tmp_path, "results", OPENVPN, PI, costs=costs)
    # A tenth of a core in plain code: 300 us for a packet; its bytes, which cost nothing with
    # instructions for AES, now do what they take longer without.
    slower_ns = (1e3 / 52 - 1e3 / 2000) * 1200
    for row in trials.iter_rows(named=True):
        expected = 1e9 / (10 * (30_000 + slower_ns))
        assert row["received_forward_packet_s"] == pytest.approx(expected, rel=0.01)
        assert row["cpu_device_client_ratio"] == pytest.approx(1.0, abs=0.01)
        # The server is a host, and spends what was fitted there.
        assert row["cpu_tunnel_ratio"] == pytest.approx(1 + 30e-6 * expected, abs=0.02)
    assert "CPU work as fitted elsewhere, OpenVPN 2.6.14" in trials["notes"][0]
    assert "scaled to pi-b by AES-256-GCM: 52 MB/s there without cipher" in trials["notes"][0]


def test_a_job_by_itself_and_merged_is_the_study_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 10\npayload_bytes = 64\n'
    lossy = SERIAL + 'loss_forward = "10 %"\n'
    study = made(tmp_path, OPENVPN, '[[tunnel]]\nkind = "wireguard"\n', lossy, echo)
    assert main.call(["plan", study, "--ids"]) == 0
    ids = capsys.readouterr().out.split()
    parts = [str(run(tmp_path / name, study, "--job", name).directory) for name in ids]
    assert main.call(["merge", *parts, "--into", str(tmp_path / "merged")]) == 0
    merged = open_result(tmp_path / "merged")
    assert merged.manifest.outcome == "complete"
    whole = run(tmp_path / "whole", study)
    one, other = (
        found.trials().drop(OF_THE_RUN).sort("trial_id", "path") for found in (merged, whole)
    )
    assert one.equals(other, null_equal=True)


def test_what_cannot_be_simulated_is_named_and_the_rest_runs(tmp_path: Path) -> None:
    own = 'metrics = { file_transfer = "transfer_goodput_bit_s" }\n'
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 10\npayload_bytes = 64\n'
    file = '[[workload]]\nkind = "file_transfer"\ncongestion = ["bbr", "vegas"]\n'
    result = run(tmp_path / "results", made(tmp_path, own, OPENVPN, SERIAL, echo, file))
    assert all("file_transfer" in name for name in result.manifest.skipped)
    assert len(result.manifest.skipped) == 2
    trials = totals(result)
    assert set(trials["workload_kind"]) == {"udp_echo"}
    assert trials["valid"].all()


def test_echoes_and_bulk_transfers_of_a_study_are_all_simulated(tmp_path: Path) -> None:
    result = run(tmp_path / "results", "modern-2026", "--scale", "smoke")
    assert not result.manifest.skipped
    trials = totals(result)
    assert set(trials["workload_kind"]) == {"udp_echo", "tcp_bulk"}
    assert trials["valid"].all()
    assert len(set(trials["tunnel"])) == 6
    bulk = trials.filter(pl.col("workload_kind") == "tcp_bulk")
    assert (bulk["tcp_goodput_bit_s"] > 0).all()


def test_over_tcp_the_tunnel_loses_nothing_that_the_line_does(tmp_path: Path) -> None:
    tunnels = "".join(
        f'[[tunnel]]\nkind = "{kind}"\n{more}'
        for kind, more in (("openvpn", 'transport = "tcp"\n'), ("sstp", ""), ("ssh_tun", ""))
    )
    lossy = SERIAL + 'loss_forward = "3 %"\nloss_reverse = "3 %"\n'
    own = 'metrics = { tcp_bulk = "tcp_goodput_bit_s" }\n'
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "10 ms"\npackets = 400\npayload_bytes = 500\n'
    bulk = '[[workload]]\nkind = "tcp_bulk"\nduration = "2 s"\n'
    wait = 'drain = "3 s"\n'
    result = run(tmp_path / "results", made(tmp_path, own, tunnels, lossy, echo + wait, bulk))
    assert not result.manifest.skipped
    trials = totals(result)
    assert trials["valid"].all()
    echoes = trials.filter(pl.col("workload_kind") == "udp_echo")
    for row in echoes.iter_rows(named=True):
        lost = row["loss_forward_ratio"] + row["loss_reverse_ratio"]
        assert lost > 0 if row["tunnel"] == "none" else lost == 0
    # What waits for a segment that is sent again.
    least = {row["tunnel"]: row["rtt_p99_ns"] for row in echoes.iter_rows(named=True)}
    assert all(least[name] > least["none"] + 20 * MS for name in least if name != "none")
    assert (trials.filter(pl.col("workload_kind") == "tcp_bulk")["tcp_goodput_bit_s"] > 0).all()
    report = (result.directory / "report" / "report.html").read_text(encoding="utf-8")
    assert "over TCP with cubic" in report


def test_ipsec_over_a_wlan(tmp_path: Path) -> None:
    result = run(tmp_path / "results", "munasinghe-2005", "--scale", "smoke")
    trials = totals(result)
    assert trials["valid"].all()
    assert set(trials["tunnel"]) == {"none", "ipsec-1"}
    assert (trials["unanswered_ratio"] == 0).all()
    # A frame of this length on air, with preamble, DIFS and Ack, there and back.
    large = trials.filter(pl.col("param_payload_bytes") == 1438)["rtt_p50_ns"]
    assert ((large > 3 * MS) & (large < 6 * MS)).all()


def test_the_theory_of_a_wlan_at_its_smallest(tmp_path: Path) -> None:
    trials = totals(run(tmp_path / "results", "wlan-theory", "--scale", "smoke"))
    # Jun, Peddabachagari and Sichitiu 2003: an MSDU of 1500 bytes at 6.056 Mbit/s is 1492 of IP.
    rates = trials.filter(pl.col("param_payload_bytes") == 1464)["wire_forward_bit_s"]
    for rate in rates:
        assert rate == pytest.approx(6.056e6 * 1492 / 1500, rel=0.01)


def test_a_run_of_another_backend_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 10\npayload_bytes = 64\n'
    directory = run(tmp_path / "results", made(tmp_path, OPENVPN, SERIAL, echo)).directory
    before = (directory / "manifest.json").read_text()
    assert main.call(["run", "--resume", str(directory), "--quiet"]) == 2
    assert "was started in simulation: give --backend sim" in capsys.readouterr().err
    assert (directory / "manifest.json").read_text() == before
    assert main.call(["run", "--resume", str(directory), "--backend", "sim", "--quiet"]) == 0
    assert json.loads((directory / "manifest.json").read_text())["outcome"] == "complete"


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # noqa: S108 - where a simulation keeps what it needs for moments
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 10\npayload_bytes = 64\n'
    result = run(tmp_path / "results", made(tmp_path, OPENVPN, SERIAL, echo))
    (run_id,) = set(result.trials()["run_id"])
    assert not [path for path in memory.iterdir() if run_id in path.name]


def test_security_on_air_costs_airtime_and_the_baseline_has_none(tmp_path: Path) -> None:
    air = '[[link]]\nkind = "wlan"\nlabel = "air"\nstandard = "802.11g"\nrate = "54 Mbit/s"\n'
    wpa2 = '[[tunnel]]\nkind = "wpa2"\nlabel = "wpa2"\nsecurity = "wpa2-tkip"\n'
    load = '[[workload]]\nkind = "udp_load"\npacket_rate = 8000\nduration = "2 s"\n'
    study = made(tmp_path, air, wpa2, load + "payload_bytes = 1000\n")
    trials = totals(run(tmp_path / "results", study)).group_by("tunnel")
    rates = dict(trials.agg(pl.col("goodput_bit_s").mean()).iter_rows())
    # TKIP adds 20 bytes to a frame of 54 Mbit/s (802.11-2020, 12.5.2): 3 us of about 260.
    assert 0.97 < rates["wpa2"] / rates["none"] < 0.999


def test_a_copy_of_a_result_grows_on_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 10\npayload_bytes = 64\n'
    study = made(tmp_path, OPENVPN, '[[tunnel]]\nkind = "wireguard"\n', SERIAL, echo)
    monkeypatch.chdir(tmp_path)
    sent: list[int] = []
    sending = Sender.send

    def counted(sender: Sender) -> int:
        count = sending(sender)
        sent.append(len(list((tmp_path / "store").rglob("trials/*.parquet"))))
        return count

    monkeypatch.setattr(Sender, "send", counted)
    place = (tmp_path / "store").as_uri()
    words = ["run", study, "--backend", "sim", "--quiet", "--results", place]
    assert main.call(words) == 0
    # Each job when it has ended, and what is left at the end of the run.
    assert sent == [1, 2, 2]
    (here,), (there,) = (tmp_path / "results").iterdir(), (tmp_path / "store").iterdir()
    assert there.name == here.name
    assert open_result(there).trials().equals(open_result(here).trials())
    assert (there / "report" / "report.html").read_bytes() == (
        here / "report" / "report.html"
    ).read_bytes()


def test_the_costs_of_the_package_are_taken_unless_none_are_wanted(tmp_path: Path) -> None:
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 20\npayload_bytes = 972\n'
    found = []
    for name, words in (("with", []), ("without", ["--no-costs"])):
        result = run(tmp_path / name, made(tmp_path, OPENVPN, SERIAL, echo), *words)
        trials = totals(result).filter(pl.col("tunnel") == "openvpn")
        said = result.manifest.environment["costs of openvpn"]
        assert said.startswith("none: ") is (name == "without")
        assert trials["cpu_tunnel_ratio"].is_null().all() == (name == "without")
        found.append(trials["rtt_p50_ns"][0])
    # Four pieces of work, of some tens of microseconds each on the machine of the fit.
    assert 4 * 10_000 < found[0] - found[1] < 4 * 100_000


def test_costs_and_none_at_once_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "quickstart", "--backend", "sim", "--costs", str(tmp_path), "--no-costs"]
    assert main.call(words) == 2
    assert "--costs and --no-costs are mutually exclusive" in capsys.readouterr().err
    assert main.call(["run", "quickstart", "--no-costs"]) == 2
    assert "--costs and --no-costs are for --backend sim" in capsys.readouterr().err


def test_records_of_many_packets_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    load = '[[workload]]\nkind = "udp_load"\nduration = "40 s"\npayload_bytes = 100\n'
    study = made(tmp_path, SERIAL, load + "packet_rate = [500, 1000]\n")
    packets = {}
    for words in ([], ["--samples"], ["--no-samples"]):
        result = run(tmp_path / "-".join(["results", *words]), study, *words)
        files = result.directory.glob("samples/*.send.rec")
        packets[(*words,)] = {file.stat().st_size // 64 - 1 for file in files}
    assert {words: sorted(found) for words, found in packets.items()} == {
        (): [20_000],
        ("--samples",): [20_000, 40_000],
        ("--no-samples",): [],
    }


@pytest.mark.parametrize(
    ("most", "words", "kept"),
    [(8, [], {1, 2}), (3, [], {1}), (100, [], {1, 2, 3, 4}), (3, ["--samples"], {1, 2, 3, 4})],
)
def test_records_are_kept_of_as_many_repeats_as_a_report_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, words: list[str], kept: set[int]
) -> None:
    monkeypatch.setattr(session, "TRIALS_WITH_RECORDS", most)
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 9\npayload_bytes = [64, 500]\n'
    trials = totals(run(tmp_path / "results", made(tmp_path, OPENVPN, SERIAL, echo), *words))
    # Two points with the tunnel and two without, four repeats each.
    assert trials.height == 16
    has = trials.filter(pl.col("samples").list.len() > 0)
    assert set(has["repeat"]) == kept
    assert has.height == 4 * len(kept)


def test_what_can_run_now_is_not_missing_any_more(tmp_path: Path) -> None:
    """A run that lacked a program is resumed where it is there."""
    echo = '[[workload]]\nkind = "udp_echo"\ngap = "10 ms"\npackets = 20\npayload_bytes = 64\n'
    result = run(tmp_path / "first", made(tmp_path, OPENVPN, SERIAL, echo))
    with closing(Writer(result.directory)) as writer:
        writer.update(skipped={"openvpn": "openvpn is not installed", "other": "no program"})
    found = main.call(["run", "--resume", str(result.directory), "--backend", "sim", "--quiet"])
    assert found == 0
    # Of what this run did not ask for nothing new is known.
    assert open_result(result.directory).manifest.skipped == {"other": "no program"}
