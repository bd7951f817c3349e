"""The audit finds the contradictions that are in the published data, and none in clean data."""

from collections import Counter

from tunnelmark.analysis.audit import audit
from tunnelmark.published import claims, table

_STEMS = (
    "pptp-vs-ssl-2011.throughput",
    "pptp-vs-ssl-2011.summary",
    "dymora-2014.tcp-throughput",
    "dymora-2014.file-transfer",
    "caldas-calle-2017.rtt",
)


def _published() -> tuple[dict[str, list[dict[str, str]]], dict[str, dict[str, str]]]:
    return {stem: table(stem) for stem in _STEMS}, {row["id"]: row for row in table("claims")}


def test_every_claim_has_an_id_of_its_own() -> None:
    ids = [claim.claim_id for claim in claims()]
    assert len(ids) == 54
    assert len(set(ids)) == len(ids)


def test_utilisation_of_table_4_21_is_not_throughput_over_capacity() -> None:
    found = [f for f in audit(*_published()) if f.kind == "utilisation"]
    assert {f.place.split(",")[0] for f in found} == {"table 4.21"}
    assert {(f.printed, f.computed) for f in found} >= {("83.05 %", "83.78 %")}


def test_table_4_53_repeats_another_under_a_different_label() -> None:
    found = [f for f in audit(*_published()) if f.kind == "repeated table"]
    assert any("4.53" in f.place and "4.30" in f.message for f in found)


def test_summaries_that_are_not_the_mean_of_their_parts() -> None:
    found = [f for f in audit(*_published()) if f.kind == "mean"]
    assert any(
        f.place.startswith("table 4.20")
        and f.computed == "175.40 KiB/s"
        and f.printed == "174.92 KiB/s"
        for f in found
    )
    assert not any(f.place.startswith("table 4.10,") for f in found)


def test_what_only_compression_can_explain_is_listed() -> None:
    found = [f for f in audit(*_published()) if f.study == "dymora-2014"]
    assert any("pptp test 1" in f.place and f.printed == "84.22 Mbit/s" for f in found)
    assert not any("ikev2" in f.place for f in found)


def test_a_corrected_row_is_no_finding() -> None:
    tables, claim_rows = _published()
    rows = tables["pptp-vs-ssl-2011.throughput"]
    before = Counter(f.kind for f in audit(tables, claim_rows))
    for row in rows:
        if row["table"] == "4.21" and row["corpus"] == "video":
            row["mean_utilisation_pct"] = "83.78"
    after = Counter(f.kind for f in audit(tables, claim_rows))
    assert before["utilisation"] - after["utilisation"] == 1
