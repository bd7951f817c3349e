"""Known answers, many times over: bench/truth.md says how often an interval has the truth in it.

python bench/truth.py RUNS [--kernel-tunnels]; run by make truth, as root, on a quiet computer. The
answers are kept beside the page (truth.csv): so many runs are added to those that are there, with
new seeds. With --kernel-tunnels those of a machine are measured again beside a known cost like
theirs (truth-kernel.csv); status 1 where one does not cost more than nothing, or the known cost is
measured more than 10 % off. Status 1 too where intervals have the truth in less than 95 % of the
cases, chance aside.
"""

import argparse
import csv
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import truths  # tests/truth
from scipy import stats

from tunnelmark.engine.binary import find_engine
from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.store import Result

REPEATS = 4
"""The fewest of which there is an interval."""
KINDS = [str, str, *[float] * (len(fields(truths.Answer)) - 2)]
CONFIDENCE = 0.95
MOST_OFF = 0.1
"""Of a known cost in the kernel of a machine."""


def main(runs: int, page: Path, *, kernel_tunnels: bool) -> int:
    kept, of_kernel = page.with_suffix(".csv"), page.with_name(f"{page.stem}-kernel.csv")
    done = {(one.seed, study_of(one.answer.what)) for one in read(kept)}
    last = max((seed for seed, _ in done), default=0)
    # A run that was killed between two studies of a seed left the other out.
    begun = [last] if runs and last and (last, len(truths.STUDIES) - 1) not in done else []
    without = 0
    for seed in [*begun, *range(last + 1, last + runs + 1)]:
        for number, (text, evaluate) in enumerate(truths.STUDIES):
            if (seed, number) in done:
                continue
            try:
                with measuring(seed=seed, repeats=REPEATS) as measured:
                    found = evaluate(measured(text))
            except (TunnelmarkError, truths.NoAnswerError) as error:
                without += 1
                print(f"run {seed}: no answer: {error}", file=sys.stderr)
                continue
            with kept.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows((seed, REPEATS, *astuple(answer)) for answer in found)
        write(page, kept, of_kernel)
    write(page, kept, of_kernel)
    if without:
        print(f"{without} studies gave no answer: too few trials were valid", file=sys.stderr)
    narrow = too_narrow(read(kept))
    for what in narrow:
        print(f"intervals have the truth too seldom: {what}", file=sys.stderr)
    status = 1 if narrow else 0
    if not kernel_tunnels:
        return status
    with measuring(seed=1, wanted="machine") as measured:
        pairs = truths.beside_known(measured)
    with of_kernel.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows((*astuple(own), *astuple(known)) for own, known in pairs)
    write(page, kept, of_kernel)
    right = all(own.low > 0 and abs(known.error) < MOST_OFF for own, known in pairs)
    return status if right else 1


def study_of(what: str) -> int:
    """Return the number of the study that gives a figure; the kernel's is the last."""
    return 1 if what.startswith("CPU of a packet in the kernel") else 0


def too_narrow(kept: Sequence["Found"]) -> list[str]:
    """Return the figures whose intervals have the truth less often than they say.

    All figures together are called so by chance in 5 % of cases at most (Bonferroni).
    """
    answers = by_figure(kept)
    sure = 1 - (1 - CONFIDENCE) / len(answers) if answers else CONFIDENCE
    return [what for what, found in answers.items() if share(found, sure)[1] < CONFIDENCE]


def by_figure(kept: Sequence["Found"]) -> dict[str, list["truths.Answer"]]:
    answers = defaultdict(list)
    for one in kept:
        answers[one.answer.what].append(one.answer)
    return dict(answers)


def write(page: Path, kept: Path, of_kernel: Path) -> None:
    """Write the page of all answers that are kept; with no run this is all that is done."""
    page.write_text(table(read(kept)) + kernel_table(read_pairs(of_kernel)), encoding="utf-8")


@contextmanager
def measuring(**how: Any) -> Iterator[Callable[..., Result]]:
    """Give what runs a study; its result goes with the block."""
    with tempfile.TemporaryDirectory(prefix="tunnelmark-truth-") as folder:
        yield partial(truths.measure, results=Path(folder), engine=find_engine(), **how)


class Found(NamedTuple):
    """What a run said of one figure."""

    seed: int
    repeats: int
    answer: "truths.Answer"


def read(kept: Path) -> list[Found]:
    """Return what earlier runs found."""
    if not kept.exists():
        return []
    with kept.open(encoding="utf-8", newline="") as file:
        return [Found(int(row[0]), int(row[1]), answer(row[2:])) for row in csv.reader(file)]


def read_pairs(kept: Path) -> list[tuple["truths.Answer", "truths.Answer"]]:
    """Return tunnels of the kernel and the known costs beside them, as last measured."""
    if not kept.exists():
        return []
    with kept.open(encoding="utf-8", newline="") as file:
        return [(answer(row[: len(KINDS)]), answer(row[len(KINDS) :])) for row in csv.reader(file)]


def answer(row: Sequence[str]) -> "truths.Answer":
    return truths.Answer(*(kind(word) for kind, word in zip(KINDS, row, strict=True)))


def table(kept: Sequence[Found]) -> str:
    """Return the page of all answers."""
    answers = by_figure(kept)
    rows = []
    for what, found in answers.items():
        mean = statistics.fmean(answer.value for answer in found)
        rows.append(
            f"| {what} | {found[0].truth:.4g} {found[0].unit} | {mean:.4g} {found[0].unit} "
            f"| {mean / found[0].truth - 1:+.1%} | {covered(found)} |"
        )
    rows.append(f"| all of them | | | | {covered([one.answer for one in kept])} |")
    runs = {one.seed: one.repeats for one in kept}
    repeats = " or ".join(str(number) for number in sorted({*runs.values()}))
    missing = len(runs) * len(answers) - len(kept)
    without = f" {missing} more had too few valid trials for an interval." if missing else ""
    return "\n".join(
        [
            "# Known answers",
            "",
            (
                f"Made by `make truth`: {len(runs)} seeds, {len(truths.STUDIES)} runs of the "
                f"program for each ({len(runs) * len(truths.STUDIES)} runs of {repeats} repeats). "
                "Each figure was chosen, built into a tunnel or the kernel (tests/truth), and "
                "measured by the whole program. 95 % intervals should have the truth in them in "
                "95 % of the cases; the last column is what so many cases can say of that (Clopper "
                f"and Pearson).{without}"
            ),
            "",
            "| figure | put in | measured, mean | off by | intervals with the truth | that is |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def covered(found: Sequence["truths.Answer"]) -> str:
    """Return how many intervals have the truth in them, and the share that this speaks for."""
    low, high = share(found)
    number = sum(answer.covered for answer in found)
    return f"{number} of {len(found)} | {low:.1%} to {high:.1%}"


def share(found: Sequence["truths.Answer"], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return between what the share of intervals with the truth lies (Clopper, Pearson 1934)."""
    number = sum(answer.covered for answer in found)
    low, high = stats.binomtest(number, len(found)).proportion_ci(confidence)
    return float(low), float(high)


def kernel_table(pairs: list[tuple["truths.Answer", "truths.Answer"]]) -> str:
    """Return the part of the page on tunnels of the kernel; nothing where none was measured."""
    if not pairs:
        return ""
    rows = [
        f"| {own.what.rpartition(', ')[2]} | {own.value:.0f} us [{own.low:.0f}, {own.high:.0f}] "
        f"| {known.value:.0f} us [{known.low:.0f}, {known.high:.0f}] | {known.error:+.1%} |"
        for own, known in pairs
    ]
    return "\n".join(
        [
            "",
            "## Tunnels of the kernel, in a machine",
            "",
            (
                "What a packet of 8,800 bytes costs above no tunnel, at 200 packets a second. Then "
                "a known cost as large is put under the same load, in a machine of the same kind: "
                "the program must find it within 10 %."
            ),
            "",
            "| tunnel | a packet costs | the known cost, measured | off by |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int)
    parser.add_argument("--kernel-tunnels", action="store_true")
    parser.add_argument("--page", type=Path, default=Path("bench/truth.md"))
    chosen = parser.parse_args()
    sys.exit(main(chosen.runs, chosen.page, kernel_tunnels=chosen.kernel_tunnels))
