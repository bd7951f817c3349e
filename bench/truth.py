"""Known answers, many times over: bench/truth.md says how often an interval has the truth in it.

python bench/truth.py RUNS [PAGE]; run by make truth, as root, on a quiet computer.
"""

import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import truths  # type: ignore[import-not-found]  # tests/truth
from scipy import stats

from tunnelmark.engine.binary import find_engine
from tunnelmark.model.errors import TunnelmarkError

REPEATS = 5


def main(runs: int, page: Path) -> None:
    answers: dict[str, list[truths.Answer]] = defaultdict(list)
    without = 0
    for seed in range(1, runs + 1):
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
            for answer in found:
                answers[answer.what].append(answer)
        page.write_text(table(answers, seed, without), encoding="utf-8")


def table(answers: dict[str, list["truths.Answer"]], runs: int, without: int) -> str:
    rows = []
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
                f"Made by `make truth` ({runs} seeded runs of {REPEATS} repeats, {without} studies "
                "without an answer because too few trials were valid). Each figure was chosen, "
                "built into a tunnel or the kernel (tests/truth), and measured by the whole "
                "program. 95 % intervals should have the truth in them in 95 % of the runs; the "
                "last column is what so many runs can say of that (Clopper and Pearson)."
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
