"""Figures of a machine never stand beside those of namespaces without a mark."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from made_results import block_record, manifest, trial_result
from tunnelmark.analysis.cells import cells_of
from tunnelmark.analysis.estimates import point_estimates
from tunnelmark.analysis.strata import set_apart, shown_name
from tunnelmark.model.block import ProofVerdict, Stratum
from tunnelmark.report.html import to_html
from tunnelmark.report.sections import fragmentation_points
from tunnelmark.report.summary import Summary, summarise
from tunnelmark.store import Result, Writer, open_result
from tunnelmark.study.points import pair_id


def made(folder: Path, second: Stratum, chosen: str | None = None) -> Result:
    """Two tunnels, each in its own block, the baseline in both: 1 ms there, 5 ms here."""
    writer = Writer.create(folder / "result", manifest())
    for block, tunnel, rtt in (("b1", "fast", 1e6), ("b2", "slow", 5e6)):
        for number in (1, 2, 3, 4):
            for name, times in ((tunnel, 2.0 if tunnel == "slow" else 1.5), ("none", 1.0)):
                figures: dict[str, float | None] = {"rtt_p50_ns": rtt * times + number}
                result = trial_result(name, 1000, number, figures, block=block)
                writer.append(result, pair_id=pair_id(result.trial.point))
    first = replace(block_record(), tunnel="fast", baseline_proofs=block_record().proofs)
    writer.write_block(replace(first, chosen=chosen))
    writer.write_block(replace(first, block_id="b2", tunnel="slow", stratum=second))
    writer.close()
    return open_result(folder / "result")


def rtt_ms(summary: Summary) -> dict[str, float]:
    return {p.tunnel: round(p.estimates["rtt_p50_ns"].value / 1e6, 3) for p in summary.points}


def test_on_native_cpus_the_baselines_are_one(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, Stratum.NAMESPACES))
    assert set(rtt_ms(summary)) == {"none", "fast", "slow"}
    assert not any("emulated" in sentence for sentence in summary.findings)


@pytest.mark.parametrize("stratum", [Stratum.EMULATED, Stratum.VIRTUALIZED])
def test_a_block_in_a_machine_is_marked_and_its_baseline_is_its_own(
    tmp_path: Path, stratum: Stratum
) -> None:
    result = made(tmp_path, stratum)
    summary = summarise(result)
    expected = {"none": 1.0, f"none ({stratum})": 5.0, "fast": 1.5, f"slow ({stratum})": 10.0}
    assert rtt_ms(summary) == expected
    (section,) = summary.sections
    assert set(section.fragmentation) == set(expected)
    assert any(sentence.startswith(f'"{stratum}" means') for sentence in summary.findings)
    # The difference stays that to the baseline of the same block.
    (slow,) = [p for p in summary.points if p.tunnel == f"slow ({stratum})"]
    assert slow.differences["rtt_p50_ns"].value == pytest.approx(1.0, abs=1e-3)
    page = to_html(summary, result)
    assert f"slow ({stratum})" in page
    assert (slow.label, slow.stratum) == ("slow", stratum)


def test_a_simulation_shows_no_capture(tmp_path: Path) -> None:
    result = made(tmp_path, Stratum.NAMESPACES)
    summary = summarise(result)
    modelled = tuple(replace(block, stratum=Stratum.SIMULATION) for block in summary.blocks)
    captured, said = "What a capture on the link showed", "What the packet model says of each"
    page, of_models = to_html(summary, result), to_html(replace(summary, blocks=modelled), result)
    assert (captured in page, said in page) == (True, False)
    assert (captured in of_models, said in of_models) == (False, True)


def test_a_tunnel_in_a_machine_is_no_rival_of_a_native_one(tmp_path: Path) -> None:
    (native,) = summarise(made(tmp_path / "native", Stratum.NAMESPACES)).uses
    mixed = summarise(made(tmp_path / "mixed", Stratum.VIRTUALIZED)).uses
    assert (native.recommended, native.clear) == (("fast",), True)
    # Each is alone in a use of its own.
    assert [(one.clear, one.place.endswith(" (virtualized)")) for one in mixed] == [
        (False, False),
        (False, True),
    ]


def test_what_a_driver_chose_is_in_the_name_wherever_a_figure_stands(tmp_path: Path) -> None:
    result = made(tmp_path, Stratum.EMULATED, chosen="wireguard-go")
    summary = summarise(result)
    name = "fast (wireguard-go)"
    assert set(rtt_ms(summary)) == {"none", name, "none (emulated)", "slow (emulated)"}
    (section,) = summary.sections
    assert name in section.fragmentation
    assert name in to_html(summary, result)
    # A hypothesis speaks of the tunnel as the study calls it.
    cells = cells_of(set_apart(result.trials(), result.blocks.values()), "rtt_p50_ns")
    assert {cell.names["tunnel"] for cell in cells} == {"none", "fast", "slow"}


def test_a_name_that_says_what_was_chosen_stays() -> None:
    block = replace(
        block_record(), tunnel="boringtun 4", chosen="boringtun", stratum=Stratum.EMULATED
    )
    assert shown_name("boringtun 4", block) == "boringtun 4 (emulated)"
    other = replace(block, chosen="wireguard-go")
    assert shown_name("boringtun 4", other) == "boringtun 4 (wireguard-go, emulated)"
    assert shown_name("none", other) == "none (emulated)"


def test_a_label_may_end_with_the_words_of_a_mark(tmp_path: Path) -> None:
    """A study may call a tunnel "slow (simulated)": what code asks is never read from a name."""
    trials = made(tmp_path, Stratum.EMULATED).trials()
    named = trials.with_columns(pl.col("tunnel").replace("slow", "slow (simulated)"))
    blocks = made(tmp_path / "again", Stratum.EMULATED).blocks.values()
    found = point_estimates(set_apart(named, blocks), confidence=0.95)
    (slow,) = [p for p in found if p.label == "slow (simulated)"]
    assert slow.tunnel == "slow (simulated) (emulated)"
    assert slow.stratum is Stratum.EMULATED


def test_a_sentence_with_two_names_has_no_chain_of_commas(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, Stratum.SIMULATION, chosen="wireguard-go"))
    said = " ".join(summary.findings)
    assert "fast (wireguard-go)" in said
    assert not re.search("(?:slow|none|fast), (?:simulated|wireguard-go)", said)


def test_a_proof_that_failed_is_no_finding() -> None:
    (proof,) = block_record().proofs
    failed = replace(block_record(), proofs=(replace(proof, verdict=ProofVerdict.SAW_WRONG),))
    for block, expected in ((block_record(), {"openvpn": 1420}), (failed, {})):
        assert fragmentation_points([block], block.link, block.device) == expected


def test_a_baseline_of_another_ip_version_keeps_its_name() -> None:
    (proof,) = block_record().proofs
    beside = replace(proof, fragmentation_point_bytes=1452)
    block = replace(block_record(), baseline="none IPv6", baseline_proofs=(beside,))
    found = fragmentation_points([block], block.link, block.device)
    assert found == {"none IPv6": 1452, "openvpn": 1420}


def test_a_simulated_block_is_marked_so_and_never_beside_a_measured_one(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, Stratum.SIMULATION))
    expected = {"none": 1.0, "none (simulated)": 5.0, "fast": 1.5, "slow (simulated)": 10.0}
    assert rtt_ms(summary) == expected
    assert any(sentence.startswith('"simulated" means') for sentence in summary.findings)
    assert all(one.rival is None for one in summary.statements)
