"""The five publications at full scale in virtual time: what it takes, and each claim's verdict.

Each study runs on two Dask workers; the verdicts are those of its report. Writes
``bench/classics.md``. Fails if a claim is not confirmed and nothing says why.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunnelmark.report.beside import Comparison, Judged
from tunnelmark.report.classics import load_classic, names
from tunnelmark.report.summary import summarise
from tunnelmark.report.tables import claims_table
from tunnelmark.store import open_result

PAGE: Final = Path(__file__).with_name("classics.md")
_MOST_S: Final = 900
_WORKERS: Final = "local:2"


@dataclass(frozen=True)
class Ran:
    """One study."""

    study: str
    seconds: float
    trials: int
    comparison: Comparison

    @property
    def silent(self) -> list[Judged]:
        """Claims that are not confirmed and of which nothing says why."""
        classic = load_classic(self.study)
        known = {} if classic is None else {**classic.simulated, **classic.unjudged}
        return [
            one
            for one in self.comparison.claims
            if one.outcome != "confirmed" and one.claim.claim_id not in known
        ]


def main() -> int:
    """Run all, or those that are named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", default=list(names()))
    parser.add_argument("--results", type=Path, help="keep the results here")
    parser.add_argument("--read", action="store_true", help="read them there, and run nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tm-classics-", dir="/var/tmp") as own:
        folder = given.results or Path(own)
        ran = [_ran(study, folder, again=not given.read) for study in given.studies]
    PAGE.write_text(page(ran), encoding="utf-8")
    for one in ran:
        for judged in one.silent:
            print(f"{one.study}, {judged.claim.claim_id}: {judged.outcome}, nothing says why")
    return 1 if any(one.silent for one in ran) else 0


def _ran(study: str, folder: Path, *, again: bool) -> Ran:
    results, took = folder / study, folder / f"{study}.json"
    if again:
        program = Path(sys.executable).with_name("tunnelmark")
        options = ("--scale", "full", "--backend", "sim", "--cluster", _WORKERS, "--quiet")
        begun = time.monotonic()
        subprocess.run(
            [program, "run", study, *options, "--results", results],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took.write_text(json.dumps(time.monotonic() - begun))
    (directory,) = (path.parent for path in results.glob("*/manifest.json"))
    summary = summarise(open_result(directory))
    if summary.comparison is None:
        raise SystemExit(f"{study} repeats no publication")
    return Ran(study, json.loads(took.read_text()), summary.valid_trials, summary.comparison)


def page(ran: Sequence[Ran]) -> str:
    """Return the page."""
    seconds = sum(one.seconds for one in ran)
    lines = [
        "# The five publications, simulated",
        "",
        (
            "Written by `make classics`: each study as written (`--scale full --backend sim`), "
            f"on two workers of a local Dask cluster. Together {seconds / 60:.1f} minutes; the "
            f"goal is {_MOST_S // 60}."
        ),
        "",
        "| study | seconds | trials | confirmed | rejected | undecided | not judged |",
        "| --- " * 7 + "|",
    ]
    for one in ran:
        counts = Counter(judged.outcome for judged in one.comparison.claims)
        outcomes = [str(counts[key]) for key in ("confirmed", "rejected", "undecided", None)]
        cells = (one.study, f"{one.seconds:.0f}", str(one.trials), *outcomes)
        lines.append(f"| {' | '.join(cells)} |")
    for one in ran:
        lines += ["", f"## {one.study}", "", *claims_table(one.comparison.claims)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
