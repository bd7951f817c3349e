"""``make soak`` tells memory that grows from memory that does not."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soak
from soak import OURS, TUNNELS, Series, Soaked, grown, keep, main, missing, page, trend

_HOUR = np.arange(10.0, 3600.0, 10.0)


def _noise(seed: int) -> np.ndarray:
    """Memory that goes up and down by half a MiB and stays alike for minutes."""
    steps = np.random.default_rng(seed).normal(0, 0.1, len(_HOUR))
    values = [0.0]
    for step in steps[1:]:
        values.append(0.95 * values[-1] + step)
    return np.array(values)


@pytest.mark.parametrize(
    ("mib", "verdict"),
    [
        (np.full_like(_HOUR, 20.0), "flat"),
        (20 + 0.05 * _noise(1), "flat"),
        (np.where(_HOUR < 300, 10.0, 20.0), "flat"),
        (20 + 6 * _HOUR / 3600, "grows"),
        (20 + 8 * _HOUR / 3600 + _noise(2), "grows"),
    ],
    ids=["constant", "noise", "warm-up", "leak", "leak in noise"],
)
def test_memory_is_flat_or_grows(mib: np.ndarray, verdict: str) -> None:
    found = trend(list(_HOUR), list(mib))
    assert found is not None
    assert found.verdict == verdict


def test_a_short_time_tells_nothing() -> None:
    assert trend([0, 10, 20], [1, 1, 1]) is None
    found = trend(list(_HOUR[:7]), [20.0, 20.1, 19.9, 20.0, 20.2, 19.9, 20.1])
    assert found is not None
    assert found.verdict == "not known"


def test_a_process_is_read_until_it_has_ended() -> None:
    series = Series()
    series.add(1.0, os.getpid())
    series.add(2.0, 1 << 30)
    assert series.seconds == [1.0]
    assert series.rss_mib[0] > 1
    assert series.files[0] > 2


def test_names_that_come_and_go_do_not_look_like_growth() -> None:
    """In an hour 1.9 MiB came at once: the table of interned strings had no place left."""
    words = """
import sys, soak
from pathlib import Path
def pages(): return int(Path("/proc/self/statm").read_text().split()[1])
if sys.argv[1:]: soak.fill_interned()
before = pages()
for number in range(400_000): sys.intern(f"name {number}")
print((pages() - before) * 4096 / 2**20)
"""
    grew = [
        float(
            subprocess.run(
                [sys.executable, "-c", words, *filled],
                cwd=Path(soak.__file__).parent,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for filled in ([], ["filled"])
    ]
    assert grew[0] > 1 > 4 * grew[1]


def test_what_grows_is_named_and_every_process_has_its_row() -> None:
    flat = Series(list(_HOUR), [20.0] * len(_HOUR), [7] * len(_HOUR))
    leaks = Series(list(_HOUR), list(20 + _HOUR / 60), [*[7] * (len(_HOUR) - 1), 8])
    series = {**dict.fromkeys(OURS, flat), "sender": leaks, "openvpn (client)": leaks}
    soaked = [_soaked("OpenVPN", series)]
    assert grown(soaked) == ["OpenVPN: memory of the sender", "OpenVPN: open files of the sender"]
    reported = page(soaked)
    assert (
        "| OpenVPN | reflector | 359 | 20.0 MiB | +0.00 (+0.00 to +0.00) MiB | flat | 7, flat |"
        in reported
    )
    assert "| grows | 7 to 8, grow |" in reported
    words = "36,000,000 packets sent in 3,601 s, 1 (0.00 %) did not come back"
    assert f"- OpenVPN: {words} (2026-11-27, Linux 6, 2 cores)." in reported
    stolen = page([replace(soaked[0], returned=35_640_000, stolen=0.051)])
    words = "360,000 (1.00 %) did not come back; the hypervisor took 5.1 % of the cores' time ("
    assert words in stolen


def test_traffic_that_is_missing_and_a_process_that_ended_are_named() -> None:
    flat = Series(list(_HOUR), [20.0] * len(_HOUR), [7] * len(_HOUR))
    fine = _soaked("OpenVPN", dict.fromkeys(OURS, flat))
    assert grown([fine]) == missing([fine]) == []
    assert missing([replace(fine, returned=0)]) == ["OpenVPN: packets returned, 0 of 36,000,000"]
    slow = replace(fine, sent=18_000_000, returned=18_000_000)
    assert missing([slow]) == ["OpenVPN: packets sent, 18,000,000 in 3,601 s"]
    short = Series(list(_HOUR[:200]), [20.0] * 200, [7] * 200)
    ended = replace(fine, series={**fine.series, "reflector": short})
    assert missing([ended]) == ["OpenVPN: samples of the reflector to the end"]


@pytest.mark.parametrize(
    ("files", "flat"),
    [
        ([7] * 100, True),
        ([*[7] * 60, *[8] * 39, 7], False),
        ([*[7] * 30, 8, *[7] * 50, 8, *[7] * 18], True),
    ],
    ids=["constant", "more, and the last closed", "at times one more"],
)
def test_open_files_are_looked_at_all_the_way(files: list[int], *, flat: bool) -> None:
    seconds = list(_HOUR[: len(files)])
    series = Series(seconds, [20.0] * len(files), files)
    one = replace(_soaked("OpenVPN", dict.fromkeys(OURS, series)), seconds=seconds[-1])
    assert [what for what in grown([one]) if "open files" in what] == (
        [] if flat else [f"OpenVPN: open files of the {role}" for role in OURS]
    )


def test_the_page_is_written_again_without_a_soak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = Series(list(_HOUR), [20.0] * len(_HOUR), [7] * len(_HOUR))
    (one,) = keep(_soaked("OpenVPN, AES-256-GCM", dict.fromkeys(OURS, flat)), tmp_path / "s.jsonl")
    monkeypatch.setattr(sys, "argv", ["soak.py", "--page", "--out", str(tmp_path / "s.md")])
    assert main() == 0
    assert (tmp_path / "s.md").read_text() == page([one])


def test_each_tunnel_has_its_last_hour_on_the_page(tmp_path: Path) -> None:
    kept = tmp_path / "soak.jsonl"
    openvpn, wireguard = (
        _soaked(name, {"sender": Series([0.0, 10.0], [1.5, 1.5], [7, 7])})
        for name, _ in TUNNELS.values()
    )
    assert keep(wireguard, kept) == [wireguard]
    assert keep(openvpn, kept) == [openvpn, wireguard]
    later = replace(openvpn, day="2026-11-28", sent=200)
    assert keep(later, kept) == [later, wireguard]


def _soaked(tunnel: str, series: dict[str, Series]) -> Soaked:
    return Soaked(tunnel, "2026-11-27", "Linux 6, 2 cores", 3601.0, 36_000_000, 35_999_999, series)
