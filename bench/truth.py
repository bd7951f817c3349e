"""Known answers, many times over: bench/truth.md says how often an interval has the truth in it.

python bench/truth.py RUNS [PAGE]; run by make truth, as root, on a quiet computer. The answers are
kept beside the page (truth.csv): so many runs are added to those that are there, with new seeds.
"""

import csv
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import astuple, fields
from pathlib import Path

import truths  # type: ignore[import-not-found]  # tests/truth
from scipy import stats

from tunnelmark.engine.binary import find_engine
from tunnelmark.model.errors import TunnelmarkError

REPEATS = 5


def main(runs: int, page: Path) -> None:
    kept = page.with_suffix(".csv")
    done = max((seed for seed, _ in read(kept)), default=0)
    without = 0
    for seed in range(done + 1, done + runs + 1):
        for text, evaluate in truths.STUDIES:
            with tempfile.TemporaryDirectory(prefix="tunnelmark-truth-") as folder:
                try:
                    found = evaluate(
                        truths.measure(
                            text,
                            seed=seed,
                            repeats=REPEATS,
                            results=Path(folder),
                            engine=find_engine(),
                        )
                    )
                except (TunnelmarkError, truths.NoAnswerError) as error:
                    without += 1
                    print(f"run {seed}: no answer: {error}", file=sys.stderr)
                    continue
            with kept.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows((seed, *astuple(answer)) for answer in found)
        page.write_text(table(read(kept)), encoding="utf-8")
    if without:
        print(f"{without} studies gave no answer: too few trials were valid", file=sys.stderr)


def read(kept: Path) -> list[tuple[int, "truths.Answer"]]:
    """Return what earlier runs found, by seed."""
    if not kept.exists():
        return []
    kinds = [str, str, *[float] * (len(fields(truths.Answer)) - 2)]
    with kept.open(encoding="utf-8", newline="") as file:
        return [
            (int(seed), truths.Answer(*(kind(word) for kind, word in zip(kinds, row, strict=True))))
            for seed, *row in csv.reader(file)
        ]


def table(kept: list[tuple[int, "truths.Answer"]]) -> str:
    """Return the page of all answers."""
    rows = []
    answers = defaultdict(list)
    for _, answer in kept:
        answers[answer.what].append(answer)
    runs = len({seed for seed, _ in kept})
    for what, found in answers.items():
        covered = sum(answer.covered for answer in found)
        low, high = stats.binomtest(covered, len(found)).proportion_ci()  # Clopper, Pearson 1934
        mean = statistics.fmean(answer.value for answer in found)
        rows.append(
            f"| {what} | {found[0].truth:.4g} {found[0].unit} | {mean:.4g} {found[0].unit} "
            f"| {mean / found[0].truth - 1:+.1%} | {covered} of {len(found)} "
            f"| {low:.0%} to {high:.0%} |"
        )
    return "\n".join(
        [
            "# Known answers",
            "",
            (
                f"Made by `make truth` ({runs} seeded runs of {REPEATS} repeats). Each figure was "
                "chosen, built into a tunnel or the kernel (tests/truth), and measured by the "
                "whole program. 95 % intervals should have the truth in them in 95 % of the runs; "
                "the last column is what so many runs can say of that (Clopper and Pearson)."
            ),
            "",
            "| figure | put in | measured, mean | off by | intervals with the truth | that is |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(*sys.argv[2:] or ["bench/truth.md"]))
