"""Measured beside published: the data fit the studies, the arithmetic holds."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

import pytest

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.block import (
    BlockRecord,
    Layered,
    ProofVerdict,
    Stratum,
    WireProof,
    WireSample,
)
from tunnelmark.model.hypothesis import Hypothesis, Outcome, Verdict
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.overhead import Layer
from tunnelmark.published import claims, table
from tunnelmark.report.beside import compare, of_a_claim
from tunnelmark.report.charts import Chart, Surface
from tunnelmark.report.classics import Figure, Table, load_classic, names
from tunnelmark.report.drawn import render
from tunnelmark.report.figures import to_json
from tunnelmark.report.parameters import Value
from tunnelmark.study import load_study
from tunnelmark.study.study import Study
from tunnelmark.workloads.registry import workload_kinds

LABELS = ("tunnel", "link", "device")


def labels(study: Study, section: str) -> set[str]:
    specs = {"tunnel": study.tunnels, "link": study.links, "device": study.devices}[section]
    return {spec.label for spec in specs} | ({"none"} if section == "tunnel" else set())


@pytest.mark.parametrize("name", names())
def test_what_is_compared_is_in_the_study(name: str) -> None:
    classic, study = load_classic(name), load_study(name)
    assert classic is not None
    assert classic.differs
    kinds = {spec.kind for spec in study.workloads}
    shown: tuple[Table | Figure, ...] = (*classic.tables, *classic.figures)
    for one in shown:
        assert one.workload in kinds
        given = {*workload_kinds()[one.workload].metrics}
        of_all = ("cpu_", "overhead_", "compression_", "wire_")
        assert one.metric in given or one.metric.startswith(of_all)
        for label, text in one.labels.items():
            assert text in labels(study, label)
        columns = {
            column: [spec.columns[column] for spec in study.workloads if column in spec.columns]
            for column in one.params
        }
        for column, value in one.params.items():
            assert value in columns[column], (one.number, column)


@pytest.mark.parametrize("name", names())
def test_every_published_number_has_its_place(name: str) -> None:
    classic, study = load_classic(name), load_study(name)
    assert classic is not None
    for one in classic.tables:
        assert one.metric in METRICS
        for row in table(one.csv):
            if any(row[column] not in texts for column, texts in one.only.items()):
                continue
            assert any(row[value] for value in one.values)
            for column, choice in one.choose.items():
                text = str(choice.names.get(row[column], row[column]))
                if choice.named:
                    assert (choice.label, choice.param) == (None, None)
                elif choice.label is not None:
                    assert text in labels(study, choice.label), (column, text)
                else:
                    assert any(
                        str(spec.columns.get(str(choice.param))) == text for spec in study.workloads
                    ), (column, text)


@pytest.mark.parametrize("name", names())
def test_every_published_file_stands_beside_something(name: str) -> None:
    classic = load_classic(name)
    assert classic is not None
    folder = files("tunnelmark.published")
    stems = {entry.name.removesuffix(".csv") for entry in folder.iterdir()}
    own = {stem for stem in stems if stem.startswith(f"{name}.")}
    # What its devices are is no result.
    shown = {one.csv for one in classic.tables} | {one.csv for one in classic.headers}
    assert own - {"caldas-calle-2017.devices"} == shown


def summary_points(protocols: Sequence[str]) -> list[PointEstimates]:
    rates = {"http": 6e6, "https": 7e6, "scp": 8e6}
    return [
        _point(
            tunnel="openvpn-aes-128-cbc-none",
            params={"protocol": name, "corpus": "video"},
            estimate=Estimate(
                "transfer_goodput_bit_s",
                5,
                rates[name],
                rates[name] - 1e5,
                rates[name] + 2e5,
                0.95,
                "t",
            ),
        )
        for name in protocols
    ]


def _point(tunnel: str, params: dict[str, Value], estimate: Estimate) -> PointEstimates:
    label = f"file_transfer {params['protocol']}"
    return PointEstimates(
        f"{tunnel}{label}",
        label,
        tunnel,
        tunnel,
        False,
        "8 Mbit/s 41 ms",
        "host",
        label,
        "file_transfer",
        params,
        "total",
        5,
        0,
        {estimate.metric: estimate},
        {},
    )


def test_a_printed_mean_stands_beside_the_mean_of_its_points() -> None:
    """Tables 4.41, 4.53 and 4.75 print AES-128 at 8 Mbit/s; 4.53 has the figures of Blowfish."""
    found = compare("pptp-vs-ssl-2011", summary_points(("http", "https", "scp")), ())
    assert found is not None
    rates, shares, slow = (one for one in found.tables if one.number.startswith("Summary"))
    here = [row for row in rates.rows if row.measured != "-"]
    assert [(row.cells[0], row.published) for row in here] == [
        ("4.41", "816.3"),
        ("4.53", "837.5"),
        ("4.75", "816.3"),
    ]
    # The mean of 6, 7 and 8 Mbit/s is 7 Mbit/s, which is 854.49 KiB/s; its interval is as wide.
    assert {row.measured for row in here} == {"854 [842, 879]"}
    assert here[0].difference.startswith("+4.7 % [")
    (share,) = {row.measured for row in shares.rows if row.measured != "-"}
    assert share.startswith("87.5 [")
    assert slow.found == 0
    # A mean without one of its parts is none.
    part = compare("pptp-vs-ssl-2011", summary_points(("http", "scp")), ())
    assert part is not None
    assert all(one.found == 0 for one in part.tables if one.number.startswith("Summary"))


def test_every_printed_header_has_its_place() -> None:
    classic, study = load_classic("pptp-vs-ssl-2011"), load_study("pptp-vs-ssl-2011")
    assert classic is not None
    (one,) = classic.headers
    texts = set()
    for row in table(one.csv):
        texts.add(row[one.attribute])
        for column, choice in one.choose.items():
            assert choice.label is not None
            assert choice.names[row[column]] in labels(study, choice.label)
    assert texts - set(one.layers) == {"mean_packet_size"}


def block(tunnel: str, hmac_bytes: int, paddings: Sequence[int], *, equal: bool) -> BlockRecord:
    def layers(padding: int) -> tuple[Layer, ...]:
        return (
            Layer("outer IPv4 header", 20, ""),
            Layer("outer UDP header", 8, ""),
            Layer("HMAC", hmac_bytes, ""),
            Layer("padding", padding, ""),
            Layer("inner UDP header", 8, ""),
        )

    samples = tuple(WireSample(size, (size + 56,)) for size in range(100, 100 + len(paddings)))
    # A datagram in two packets: its headers are there twice, and do not count.
    split = WireSample(1450, (1400, 150))
    twice = Layered(1450, (Layer("outer IPv4 header", 40, ""),), equal=True)
    proof = WireProof("p", ProofVerdict.PROVED, "", 9, 0, False, True, (*samples, split), 1400)
    return BlockRecord(
        "b",
        tunnel,
        "8 Mbit/s 41 ms",
        "host",
        "here",
        (),
        (),
        (proof,),
        (),
        {},
        layers=(
            *(
                Layered(sample.payload_bytes, layers(padding), equal)
                for sample, padding in zip(samples, paddings, strict=True)
            ),
            twice,
        ),
    )


def test_printed_headers_stand_beside_those_of_the_proof() -> None:
    blocks = [
        block("openvpn-bf-cbc-none", 33, range(1, 9), equal=True),
        block("openvpn-aes-128-cbc-none", 41, range(1, 17), equal=True),
        block("openvpn-aes-256-cbc-none", 41, [5], equal=False),
    ]
    found = compare("pptp-vs-ssl-2011", (), (), blocks)
    assert found is not None
    (headers,) = [one for one in found.tables if one.title == "Headers of a packet"]
    line = "8 Mbit/s 41 ms"
    rows = {row.cells: (row.published, row.measured, row.difference) for row in headers.rows}
    assert rows[line, "openvpn-bf-cbc-none", "ip_header"] == ("20", "20", "same")
    assert rows[line, "openvpn-bf-cbc-none", "security_layer"] == ("41", "34 to 41", "within")
    assert rows[line, "openvpn-aes-128-cbc-none", "security_layer"] == (
        "41",
        "42 to 57",
        "+1 to +16",
    )
    # What the capture did not confirm is not measured.
    assert rows[line, "openvpn-aes-256-cbc-none", "ip_header"] == ("20", "-", "-")
    assert rows["2 Mbit/s 115 ms", "openvpn-bf-cbc-none", "udp_header"] == ("8", "-", "-")
    assert headers.found == 6


@pytest.mark.parametrize("name", names())
def test_every_claim_is_shown(name: str) -> None:
    found = compare(name, (), ())
    assert found is not None
    assert [judged.claim for judged in found.claims] == [c for c in claims() if c.study == name]
    assert all(judged.outcome is None and judged.reason for judged in found.claims)
    classic = load_classic(name)
    assert classic is not None
    assert set(classic.unjudged) <= {judged.claim.claim_id for judged in found.claims}


def test_a_study_of_ones_own_is_set_beside_nothing() -> None:
    assert compare("quickstart", (), ()) is None


def point(device: str, frame: int, rtt_ms: float, *, mark: str = "") -> PointEstimates:
    value = Estimate(
        "rtt_p50_ns", 3, rtt_ms * 1e6, (rtt_ms - 1) * 1e6, (rtt_ms + 1) * 1e6, 0.95, "t"
    )
    params: dict[str, Value] = {"frame_bytes": frame}
    return PointEstimates(
        f"{device}{frame}",
        "p",
        f"openvpn-aes-256-cbc-lzo{mark}",
        "openvpn-aes-256-cbc-lzo",
        False,
        "802.11n 300 Mbit/s",
        device,
        "latency_at_rate",
        "latency_at_rate",
        params,
        "total",
        3,
        0,
        {"rtt_p50_ns": value},
        {},
    )


def test_a_number_stands_beside_the_point_that_it_is_about() -> None:
    found = compare("caldas-calle-2017", [point("pi-b", 512, 10.0), point("pi-b", 256, 27.0)], ())
    assert found is not None
    (only,) = found.tables
    rows = {row.cells: row for row in only.rows}
    assert only.found == 2
    # printed: 8.35 ms and 27.85 ms
    assert rows["pi-b", "512"].difference == "+20 % [+8, +32]"
    assert rows["pi-b", "512"].measured == "10.0 [9.0, 11.0]"
    assert rows["pi-b", "256"].difference.endswith("no clear difference")
    assert rows["pi-3", "256"].measured == "-"
    (chart,) = [c for c in found.charts if isinstance(c, Chart)]
    printed = next(line for line in chart.lines if line.published)
    assert printed.name == "pi-b, published"
    assert {dot.x: dot.value for dot in printed.dots}[512] == pytest.approx(8.35)


def test_an_emulated_tunnel_is_the_tunnel_that_was_meant_unless_both_ran() -> None:
    emulated = point("pi-b", 512, 10.0, mark=" (emulated)")
    one = compare("caldas-calle-2017", [emulated], ())
    both = compare("caldas-calle-2017", [emulated, point("pi-b", 512, 9.0)], ())
    assert one is not None
    assert both is not None
    assert (one.tables[0].found, both.tables[0].found) == (1, 0)


def test_a_claim_has_the_verdict_of_the_hypothesis_with_its_name() -> None:
    hypothesis = Hypothesis("cal-04", "shape", "throughput_lower_bit_s")
    verdict = Verdict(hypothesis, "rejected", "it does not", None, 1, 1.0, 0.0, None)
    found = compare("caldas-calle-2017", (), (verdict,))
    assert found is not None
    judged = {one.claim.claim_id: one for one in found.claims}
    assert (judged["cal-04"].outcome, judged["cal-04"].reason) == ("rejected", "it does not")
    assert judged["cal-03"].outcome is None


def test_a_simulation_says_why_it_does_not_confirm_a_claim() -> None:
    hypothesis = Hypothesis("pvs-06", "equivalence", "transfer_goodput_bit_s")
    verdict = Verdict(hypothesis, "rejected", "14 % slower", None, 1, 1.0, 0.0, None)
    measured = point("pi-b", 512, 10.0)
    simulated = replace(measured, stratum=Stratum.SIMULATION)

    def reason(points: Sequence[PointEstimates], outcome: Outcome) -> str:
        found = compare("pptp-vs-ssl-2011", points, [replace(verdict, outcome=outcome)])
        assert found is not None
        return next(one.reason for one in found.claims if one.claim.claim_id == "pvs-06")

    assert reason([simulated], "rejected").startswith("14 % slower; why: ")
    assert reason([simulated], "confirmed") == "14 % slower"
    assert reason([simulated, measured], "rejected") == "14 % slower"


@pytest.mark.parametrize("name", names())
def test_only_claims_of_a_publication_have_reasons(name: str) -> None:
    classic = load_classic(name)
    assert classic is not None
    assert classic.simulated.keys() <= {one.claim_id for one in claims() if one.study == name}
    assert not classic.simulated.keys() & classic.unjudged.keys()


def test_figures_of_one_section_are_distinguished() -> None:
    points = []
    for load in (0.1, 0.5):
        metrics = ("loss_forward_ratio", "cpu_client_ratio")
        figures = {m: Estimate(m, 3, load, load, load, 0.95, "t") for m in metrics}
        params: dict[str, Value] = {"frame_bytes": 1280, "load_ratio": load}
        points.append(
            replace(
                point("pi-b", 1280, 1.0), workload_kind="udp_load", params=params, estimates=figures
            )
        )
    found = compare("caldas-calle-2017", points, ())
    assert found is not None
    assert [chart.title.split(": ")[0] for chart in found.charts] == ["Section IV", "Section IV"]
    assert len({chart.key for chart in found.charts}) == 2


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        (("confirmed", "confirmed"), "confirmed"),
        (("confirmed", "undecided"), "undecided"),
        (("undecided", "rejected"), "rejected"),
    ],
)
def test_a_claim_of_two_parts_holds_if_both_do(
    parts: tuple[Outcome, Outcome], together: Outcome
) -> None:
    verdicts = [
        Verdict(Hypothesis(name, "shape", "goodput_bit_s"), outcome, name, None, 1, 1.0, 0.0, None)
        for name, outcome in zip(("mun-05", "mun-05-recovers"), parts, strict=True)
    ]
    found = compare("munasinghe-2005", (), verdicts)
    assert found is not None
    judged = {one.claim.claim_id: one for one in found.claims}
    assert judged["mun-05"].outcome == together
    assert judged["mun-05"].reason == "mun-05; mun-05-recovers"
    assert judged["mun-04"].outcome is None
    assert of_a_claim(verdicts[1], "munasinghe-2005")
    assert not of_a_claim(verdicts[1], "quickstart")


@pytest.mark.parametrize("cpu", [(0.2, 0.5, 0.9), (0.5, 0.5, 0.5)])
def test_surfaces_are_drawn_even_where_they_are_a_line(cpu: tuple[float, ...]) -> None:
    made = Surface(
        "k",
        "Goodput",
        "",
        "payload size [bytes]",
        "CPU [%]",
        "Goodput [Mbit/s]",
        tuple(("none", float(n), share, float(n * n)) for n, share in enumerate(cpu)),
    )
    assert render(made, "svg").startswith(b"<?xml")
    figure = json.loads(to_json(made))
    # The basic build of Plotly has scatter only: heights are shades.
    assert [trace["type"] for trace in figure["data"]] == ["scatter"]
    assert figure["data"][0]["marker"]["color"] == [0.0, 1.0, 4.0]
