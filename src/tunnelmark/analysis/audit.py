"""Checks the published figures against themselves: both numbers of each finding, no repair."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

Row = Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """One place where a publication contradicts itself."""

    study: str
    place: str
    """Table or claim, and the row."""
    kind: str
    """``utilisation``, ``mean``, ``repeated table``, ``order`` or ``arithmetic``."""
    printed: str
    computed: str
    message: str


STEMS: Final = (
    "pptp-vs-ssl-2011.throughput",
    "pptp-vs-ssl-2011.summary",
    "dymora-2014.tcp-throughput",
    "dymora-2014.file-transfer",
    "caldas-calle-2017.rtt",
)
"""Tables that are looked at."""


def audit(tables: Mapping[str, Sequence[Row]], claims: Mapping[str, Row]) -> tuple[Finding, ...]:
    """Return every finding, by file and place.

    ``tables`` maps file stems of ``tunnelmark.published`` to rows, ``claims`` claim ids to rows.
    """
    return (
        *_utilisation(tables["pptp-vs-ssl-2011.throughput"]),
        *_utilisation(tables["pptp-vs-ssl-2011.summary"]),
        *_means(tables["pptp-vs-ssl-2011.throughput"], tables["pptp-vs-ssl-2011.summary"]),
        *_repeated(tables["pptp-vs-ssl-2011.summary"]),
        *_above_the_line(tables["dymora-2014.tcp-throughput"], tables["dymora-2014.file-transfer"]),
        *_load_equation(tables["caldas-calle-2017.rtt"], claims),
        *_differences(claims),
        *_order_claim(tables["pptp-vs-ssl-2011.throughput"], claims),
    )


_CAPACITY_KIB_S: Final = {"8": 1024.0, "2": 256.0}
"""The honours report takes its links as these (published/README.md)."""

_ROUNDING_PCT: Final = 0.011
"""Two decimals were printed of both numbers."""

_STUDY: Final = "pptp-vs-ssl-2011"


def _utilisation(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        rate, printed = float(row["mean_throughput_kib_s"]), float(row["mean_utilisation_pct"])
        capacity = _CAPACITY_KIB_S[row["link_mbit_s"]]
        computed = rate / capacity * 100
        if abs(computed - printed) > _ROUNDING_PCT:
            yield Finding(
                _STUDY,
                f"table {row['table']}, {row['application']} {row['corpus']}",
                "utilisation",
                f"{printed:.2f} %",
                f"{computed:.2f} %",
                f"{rate:.2f} of {capacity:.0f} KiB/s is {computed:.2f} %, not {printed:.2f} %",
            )


def _means(parts: Sequence[Row], summaries: Sequence[Row]) -> Iterator[Finding]:
    values: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in parts:
        values[_key(row)].append(float(row["mean_throughput_kib_s"]))
    for row in summaries:
        of = values[_key(row)]
        printed = float(row["mean_throughput_kib_s"])
        if not of:
            continue
        computed = sum(of) / len(of)
        if abs(computed - printed) > 0.01:  # noqa: PLR2004 - two decimals were printed
            yield Finding(
                _STUDY,
                f"table {row['table']}, {_label(row)} {row['corpus']}",
                "mean",
                f"{printed:.2f} KiB/s",
                f"{computed:.2f} KiB/s",
                f"the mean of {len(of)} applications ({', '.join(f'{v:.2f}' for v in of)}) is "
                f"{computed:.2f} KiB/s, not {printed:.2f}",
            )


def _key(row: Row) -> tuple[str, ...]:
    return (row["tunnel"], row["cipher"], row["link_mbit_s"], row["corpus"])


def _label(row: Row) -> str:
    return f"{row['tunnel']} {row['cipher']} {row['link_mbit_s']} Mbit/s"


def _repeated(rows: Sequence[Row]) -> Iterator[Finding]:
    contents: dict[str, list[tuple[str, str]]] = defaultdict(list)
    labels: dict[str, str] = {}
    for row in rows:
        contents[row["table"]].append((row["corpus"], row["mean_throughput_kib_s"]))
        labels[row["table"]] = _label(row)
    for first, second in combinations(contents, 2):
        if contents[first] == contents[second] and labels[first] != labels[second]:
            yield Finding(
                _STUDY,
                f"table {second}",
                "repeated table",
                labels[second],
                labels[first],
                f"table {second} ({labels[second]}) repeats the figures of table {first} "
                f"({labels[first]})",
            )


def _above_the_line(tcp: Sequence[Row], files: Sequence[Row]) -> Iterator[Finding]:
    """Payload faster than the line: only compression can do that, which no table states."""
    study = "dymora-2014"
    for row in tcp:
        line, seen = float(row["link_mbit_s"]), float(row["mean_throughput_mbit_s"])
        if seen > line:
            yield Finding(
                study,
                f"table {row['table']}, {row['tunnel']} test {row['test_number']}",
                "arithmetic",
                f"{seen:.2f} Mbit/s",
                f"at most {line:.0f} Mbit/s",
                f"{seen:.2f} Mbit/s of payload over a line of {line:.0f} Mbit/s: "
                f"{seen / line:.2f} times the line rate",
            )
    for row in files:
        line, seen = float(row["link_mbit_s"]), float(row["max_mbyte_s"]) * 8
        if seen > line:
            yield Finding(
                study,
                f"{row['source']}, {row['tunnel']} file transfer",
                "arithmetic",
                f"{row['max_mbyte_s']} MB/s",
                f"at most {line / 8:.2f} MB/s",
                f"{row['max_mbyte_s']} MB/s is {seen:.1f} Mbit/s over a line of {line:.0f} Mbit/s",
            )


def _load_equation(rows: Sequence[Row], claims: Mapping[str, Row]) -> Iterator[Finding]:
    """Table II's packet rates should follow from the throughput claims by Eq. (1)."""
    for claim_id, device in (("cal-01", "pi-3"), ("cal-02", "pi-b")):
        claimed = float(claims[claim_id]["value"])
        for row in rows:
            if row["device"] != device or row["frame_bytes"] != "1280":
                continue
            load = 1280 * 8 * float(row["frames_per_s"]) / 1e6
            # The claim is printed as a whole number, so it stands for half a Mbit/s to each side.
            if abs(load - claimed) > 0.5:  # noqa: PLR2004
                yield Finding(
                    "caldas-calle-2017",
                    f"table II, {device} 1280 bytes, and {claim_id}",
                    "arithmetic",
                    f"{claimed:.0f} Mbit/s",
                    f"{load:.2f} Mbit/s",
                    f"{row['frames_per_s']} packets/s of 1280 bytes are {load:.2f} Mbit/s, Eq. "
                    f"(1); the text says {claimed:.0f} Mbit/s",
                )


def _differences(claims: Mapping[str, Row]) -> Iterator[Finding]:
    fast, slow = float(claims["cal-01"]["value"]), float(claims["cal-02"]["value"])
    printed = float(claims["cal-03"]["value"])
    computed = (fast - slow) / fast * 100
    # The exact result lies between the extremes that rounding to whole Mbit/s allows.
    low = (fast - 0.5 - slow - 0.5) / (fast - 0.5) * 100
    high = (fast + 0.5 - slow + 0.5) / (fast + 0.5) * 100
    if not low <= printed <= high or abs(printed - computed) > 0.005:  # noqa: PLR2004
        within = "within" if low <= printed <= high else "outside"
        yield Finding(
            "caldas-calle-2017",
            "cal-03",
            "arithmetic",
            f"{printed:.2f} %",
            f"{computed:.2f} %",
            f"from {fast:.0f} to {slow:.0f} Mbit/s is a decrease of {computed:.2f} %, not "
            f"{printed:.2f} % ({within} what the rounding of both allows)",
        )
    gain, percent = float(claims["kol-02"]["value"]), float(claims["kol-04"]["value"])
    peak = float(claims["kol-01"]["value"])
    of_open, of_wpa2 = gain / percent * 100, gain / percent * 100 + gain
    # kol-08: throughput rises up to 1408 bytes, so the open system at 1408 bytes is the peak. The
    # percentage can be a share of either system; neither reading gives the peak.
    if min(abs(of_open - peak), abs(of_wpa2 - peak)) > 1:
        yield Finding(
            "kolahi-2010",
            "kol-02, kol-04, kol-01",
            "arithmetic",
            f"{peak:.0f} Mbit/s",
            f"{of_open:.1f} or {of_wpa2:.1f} Mbit/s",
            f"a gain of {gain:.2f} Mbit/s that is {percent:.2f} % puts the open system at "
            f"{of_open:.1f} Mbit/s (share of open) or {of_wpa2:.1f} Mbit/s (share of WPA2); "
            f"the peak is printed as {peak:.0f} Mbit/s",
        )


def _order_claim(rows: Sequence[Row], claims: Mapping[str, Row]) -> Iterator[Finding]:
    """pvs-01: OpenVPN is below PPTP on every application of the 8 Mbit/s link."""
    pptp = {
        (row["application"], row["corpus"]): float(row["mean_throughput_kib_s"])
        for row in rows
        if row["tunnel"] == "pptp" and row["link_mbit_s"] == "8"
    }
    for row in rows:
        if row["tunnel"] != "openvpn" or row["link_mbit_s"] != "8":
            continue
        own, other = (
            float(row["mean_throughput_kib_s"]),
            pptp[row["application"], row["corpus"]],
        )
        if own > other:
            yield Finding(
                _STUDY,
                f"table {row['table']}, {row['application']} {row['corpus']}, and pvs-01",
                "order",
                claims["pvs-01"]["claim"],
                f"{own:.2f} > {other:.2f} KiB/s",
                f"OpenVPN {row['cipher']} has {own:.2f} KiB/s, PPTP {other:.2f} KiB/s: "
                "the claim does not hold here",
            )
