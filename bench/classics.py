"""The five publications at full scale in virtual time: what it takes, and each claim's verdict.

All studies run at once on a Dask cluster of two workers, whose cores so stay busy to the end; the
verdicts are those of the reports. Writes ``bench/classics.md``. Fails if a claim is not confirmed
and nothing says why.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distributed import LocalCluster

from tunnelmark.report.beside import Comparison, Judged
from tunnelmark.report.classics import load_classic, names
from tunnelmark.report.summary import summarise
from tunnelmark.report.tables import claims_table
from tunnelmark.store import open_result

PAGE: Final = Path(__file__).with_name("classics.md")
_MOST_S: Final = 900
_WORKERS: Final = 2


@dataclass(frozen=True)
class Ran:
    """One study."""

    study: str
    seconds: float
    """From the start of all to its own end, the report included."""
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
    """Run all and write the page, or those that are named and write none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", default=list(names()))
    parser.add_argument("--results", type=Path, help="keep the results here")
    parser.add_argument("--read", action="store_true", help="read them there, and run nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tm-classics-", dir="/var/tmp") as own:
        folder = given.results or Path(own)
        if not given.read:
            _run(given.studies, folder)
        ran = [_read(study, folder) for study in given.studies]
    if set(given.studies) == set(names()):  # else the page would lose the others
        PAGE.write_text(page(ran), encoding="utf-8")
    for one in ran:
        for judged in one.silent:
            print(f"{one.study}, {judged.claim.claim_id}: {judged.outcome}, nothing says why")
    return 1 if any(one.silent for one in ran) else 0


def _run(studies: Sequence[str], folder: Path) -> None:
    """Run them all, and note how long each took."""
    program = Path(sys.executable).with_name("tunnelmark")
    begun = time.monotonic()
    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=_WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        options = ("--scale", "full", "--backend", "sim", "--no-samples", "--quiet")
        where = ("--cluster", cluster.scheduler_address)

        def one(study: str) -> None:
            command = [program, "run", study, *options, *where, "--results", folder / study]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            _took(study, folder).write_text(json.dumps(time.monotonic() - begun))

        with ThreadPoolExecutor(len(studies)) as pool:
            list(pool.map(one, studies))


def _took(study: str, folder: Path) -> Path:
    return folder / f"{study}.json"


def _read(study: str, folder: Path) -> Ran:
    (directory,) = (path.parent for path in (folder / study).glob("*/manifest.json"))
    summary = summarise(open_result(directory))
    if summary.comparison is None:
        raise SystemExit(f"{study} repeats no publication")
    seconds = json.loads(_took(study, folder).read_text())
    return Ran(study, seconds, summary.valid_trials, summary.comparison)


def page(ran: Sequence[Ran]) -> str:
    """Return the page."""
    seconds = max(one.seconds for one in ran)
    lines = [
        "# The five publications, simulated",
        "",
        (
            "Written by `make classics`: each study as written (`--scale full --backend sim "
            "--no-samples`), all at once on a Dask cluster of two workers. "
            f"Together {seconds / 60:.1f} minutes; "
            f"the goal is {_MOST_S // 60}."
        ),
        "",
        "| study | ended after, s | trials | confirmed | rejected | undecided | not judged |",
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
