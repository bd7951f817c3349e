"""Simulated studies end to end: trials whose truth is known in, the sentences of the report out.

How often a report tells a difference that is not there, how often it tells one that is, and how
often its intervals hold the truth. Writes ``bench/verdicts.md``.
"""

import argparse
import math
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from scipy import stats
from synthetic import DRAWN, LOSSES, Design, Made, Truth, planned, simulate

from tunnelmark.analysis.compare import Run, compare, headline_metrics
from tunnelmark.analysis.estimates import point_estimates
from tunnelmark.analysis.power import POWER, Scatter
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.summary import Summary, summarise
from tunnelmark.report.verdicts import moments_of
from tunnelmark.run.foresight import foresee

_METRICS: Final[Mapping[str, Sequence[str]]] = {"rates and times": tuple(DRAWN), "losses": LOSSES}
PROMISED: Final = 0.05
"""Share of runs without any difference that may tell one."""
_TELLING: Final = (" differs from ", " has better ", " has the best of all ")
"""What stands in each sentence of a report that tells a difference, and in no other."""
COVERED: Final = (0.93, 0.97)
SEEN: Final = (POWER - 0.05, POWER + 0.05)
"""As the power line said, within 5 points."""
_SEEN: Final = "goodput_bit_s"
"""Of which only the difference from no tunnel is reported: those to other tunnels, if any,
raise each other's power."""
_HYPOTHESES: Final = """
[[hypothesis]]
name = "a-carries-more"
kind = "superiority"
metric = "goodput_bit_s"
groups = [{ tunnel = "a" }, { tunnel = "none" }]
[[hypothesis]]
name = "a-faster-than-b"
kind = "superiority"
metric = "rtt_p50_ns"
groups = [{ tunnel = "a" }, { tunnel = "b" }]
"""
# Neither is true where all are alike, and neither's opposite.


@dataclass(frozen=True)
class Scenario:
    """One kind of study, and what its report has to keep to."""

    name: str
    truth: Truth
    design: Design = field(default_factory=Design)


_WORLDS: Final = {
    "plain": Truth(),
    "between bring-ups": Truth(bring_ups=0.02),
    "drift of 5 %": Truth(drift=0.05),
    "a tunnel scatters three times as much": Truth(unequal=3.0),
    "losses one by one": Truth(loss=0.01),
    "losses in bursts of 20": Truth(loss=0.02, burst=20),
    "rare bursts of 200": Truth(loss=0.01, burst=200),
    "all of it": Truth(bring_ups=0.02, drift=0.05, unequal=2.0, loss=0.02, burst=20, invalid=0.05),
}
_ASKING: Final = Design(bring_ups=4, more=_HYPOTHESES)
_BOTH_LINKS: Final = Design(links=2, bring_ups=4, more=_HYPOTHESES)
SILENT: Final = (
    *(Scenario(name, truth, _ASKING) for name, truth in _WORLDS.items()),
    Scenario("all of it, two links", _WORLDS["all of it"], _BOTH_LINKS),
)
CHANGED: Final = tuple(s for s in SILENT if s.name in {"plain", "between bring-ups", "all of it"})
_EFFECT: Final = {("a", "goodput_bit_s"): -0.1, ("a", "loss_forward_ratio"): 0.01}
_WORKERS: Final = Truth(bring_ups=0.01, workers=0.03)
FIGURES: Final = tuple(
    Scenario(name, truth, Design(tunnels=tuple("abcdef"), bring_ups=2, workers=workers))
    for name, truth, workers in (
        ("one worker", Truth(bring_ups=0.01), 1),
        ("three workers that are alike", Truth(bring_ups=0.01), 3),
        ("three workers that differ by 3 %", _WORKERS, 3),
    )
)
"""Each has the blocks of two tunnels."""
HANDED_ON: Final = Scenario(
    "bring-ups on three workers that differ by 3 %",
    replace(_WORKERS, effects={("a", "goodput_bit_s"): -0.1}),
    Design(bring_ups=6, min_repeats=6, max_repeats=6, workers=3, handed_on=True),
)
COVERING: Final = (
    *(
        Scenario(name, replace(truth, effects=_EFFECT), Design(bring_ups=4))
        for name, truth in _WORLDS.items()
        if name != "rare bursts of 200"
    ),
    HANDED_ON,
)


def powers() -> Iterable[Scenario]:
    """Yield studies with one true difference, just as large as their power line says is seen."""
    for name, truth in (("plain", Truth()), ("between bring-ups", Truth(bring_ups=0.02))):
        for repeats, bring_ups in ((6, 6), (12, 6)):
            design = Design(min_repeats=repeats, max_repeats=repeats, bring_ups=bring_ups)
            study, _ = planned(design)
            # Of a difference, which has the scatter of both sides; see Truth.bring_ups.
            common = 0.5 + 0.5 / len(design.payloads_bytes)
            scatter = Scatter(truth.repeats * 2**0.5, truth.bring_ups * (2 * common) ** 0.5)
            (seen,) = foresee(study, {_SEEN: scatter}, repeats).seen
            effects = {("a", _SEEN): seen.difference or 0.0}
            label = f"{name}, {repeats} repeats in {bring_ups} bring-ups, {effects['a', _SEEN]:.1%}"
            yield Scenario(label, replace(truth, effects=effects), design)


def reported(summary: Summary) -> list[str]:
    """Return the sentences of a report that tell a difference, wherever they stand."""
    sentences = [one for one in summary.findings if any(words in one for words in _TELLING)]
    sentences += [use.better_by for use in summary.uses if " against " in use.better_by]
    return sentences + [v.reason for v in summary.verdicts if v.outcome != "undecided"]


def tells(scenario: Scenario, seed: int) -> bool:
    """Say whether a report of one run tells any difference."""
    return bool(reported(summarise(simulate(scenario.design, scenario.truth, seed))))


def sees(scenario: Scenario, seed: int) -> bool:
    """Say whether a report tells the one difference that there is."""
    ((tunnel, metric),) = scenario.truth.effects
    title = METRICS[metric].title
    # Alone in its sentence, or with other tunnels that differ too.
    words = re.compile(
        rf"{re.escape(title)} (of {tunnel} )?differs from no tunnel(: (.*; )?{tunnel})? by "
    )
    summary = summarise(simulate(scenario.design, scenario.truth, seed))
    return any(words.search(sentence) for sentence in reported(summary))


def changes(scenario: Scenario, seed: int) -> bool:
    """Say whether ``compare`` calls two runs of one study different."""
    first, second = (
        simulate(scenario.design, scenario.truth, 2 * seed + number) for number in (0, 1)
    )
    metrics = headline_metrics(first.trials(), second.trials())
    found = compare(_run(first), _run(second), metrics, confidence=0.95)
    return any(change.clear for change in found.changes)


def covers(scenario: Scenario, seed: int) -> Mapping[str, tuple[int, int]]:
    """Return how many intervals of differences from no tunnel hold the truth, of how many."""
    made = simulate(scenario.design, scenario.truth, seed)
    found = {name: [0, 0] for name in _METRICS}
    for point in point_estimates(made.trials(), confidence=0.95):
        for name, metrics in _METRICS.items():
            for metric in metrics:
                one = None if point.is_baseline else point.differences.get(metric)
                if one is not None and one.low is not None and one.high is not None:
                    truth = scenario.truth.effects.get((point.tunnel, metric), 0.0)
                    found[name][0] += one.low <= truth <= one.high
                    found[name][1] += 1
    return {name: (held, of) for name, (held, of) in found.items()}


def covers_figures(scenario: Scenario, seed: int) -> tuple[int, int]:
    """Return how many intervals of figures without a tunnel hold the truth, of how many."""
    made = simulate(scenario.design, scenario.truth, seed)
    held = [
        one.low is not None and one.high is not None and one.low <= level <= one.high
        for point in point_estimates(made.trials(), confidence=0.95)
        for metric, level in DRAWN.items()
        if point.is_baseline and (one := point.estimates[metric])
    ]
    return sum(held), len(held)


@dataclass(frozen=True)
class Line:
    """One row of the page."""

    question: str
    scenario: str
    share: float
    low: float
    high: float
    """Within which the share lies at 99 %, by chance of so many simulations."""
    simulations: int
    wanted: str
    met: bool

    @property
    def row(self) -> str:
        """Return it as a row of a table in Markdown."""
        chance = f"{self.low:.1%} to {self.high:.1%}"
        mark = "met" if self.met else "MISSED"
        cells = (self.question, self.scenario, f"{self.share:.1%}", chance, self.wanted, mark)
        return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run all of them and write the page; exit status 1 if a line is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--only", help="scenarios whose name has this in it; no page is written")
    options = parser.parse_args()
    lines: list[Line] = []
    with multiprocessing.Pool(options.processes) as pool:
        for line in lines_of(options.simulations, pool.map, options.only):
            lines.append(line)
            print(line.row, flush=True)
    if options.only is None:
        _write(lines, options.simulations)
    return 0 if all(line.met for line in lines) else 1


Map = Callable[[Callable[[int], Any], Sequence[int]], Iterable[Any]]


def lines_of(simulations: int, each: Map, only: str | None = None) -> Iterable[Line]:
    """Yield the lines of the page, every scenario simulated so many times."""
    seeds = range(simulations)
    asked = (
        ("no difference, reported", tells, SILENT, silent),
        ("two runs alike, changed", changes, CHANGED, silent),
        ("true difference, reported", sees, tuple(powers()), powerful),
    )
    for question, ask, scenarios, judged in asked:
        for scenario in scenarios:
            if only is None or only in scenario.name:
                hits = sum(map(bool, each(partial(ask, scenario), seeds)))
                yield judged(question, scenario.name, hits, simulations)
    for scenario in COVERING:
        if only is None or only in scenario.name:
            runs = list(each(partial(covers, scenario), seeds))
            for kind in _METRICS if scenario.truth.loss else ("rates and times",):
                yield covered(f"intervals of {kind}", scenario.name, [run[kind] for run in runs])
    for scenario in FIGURES:
        if only is None or only in scenario.name:
            held = list(each(partial(covers_figures, scenario), seeds))
            yield covered("intervals of figures without a tunnel", scenario.name, held)


def silent(question: str, name: str, hits: int, of: int) -> Line:
    """Return a line that is met unless more were reported than is promised, chance of 1 % aside."""
    low, high = _binomial(hits, of)
    wanted = f"at most {PROMISED:.0%}"
    return Line(question, name, hits / of, low, high, of, wanted, low <= PROMISED)


def powerful(question: str, name: str, hits: int, of: int) -> Line:
    """Return a line that is met if as many were reported as the power line said, chance aside."""
    low, high = _binomial(hits, of)
    wanted = f"{SEEN[0]:.0%} to {SEEN[1]:.0%}"
    return Line(
        question, name, hits / of, low, high, of, wanted, low <= SEEN[1] and high >= SEEN[0]
    )


def covered(question: str, name: str, pairs: Sequence[tuple[int, int]]) -> Line:
    """Return a line of coverage; the runs scatter, not their points, which go together."""
    shares = [held / of for held, of in pairs if of]
    mean = math.fsum(shares) / len(shares)
    half = 2.576 * math.sqrt(math.fsum((s - mean) ** 2 for s in shares)) / len(shares)
    met = mean + half >= COVERED[0] and mean - half <= COVERED[1]
    wanted = f"{COVERED[0]:.0%} to {COVERED[1]:.0%}"
    return Line(question, name, mean, mean - half, mean + half, len(shares), wanted, met)


def _run(made: Made) -> Run:
    return Run(
        study=made.manifest.study,
        scale=made.manifest.scale,
        environment=made.manifest.environment,
        trials=made.trials(),
        blocks=tuple(made.blocks.values()),
        moments=moments_of(made),
    )


def _binomial(hits: int, of: int) -> tuple[float, float]:
    found = stats.binomtest(hits, of).proportion_ci(0.99, method="exact")
    return float(found.low), float(found.high)


def _write(lines: Sequence[Line], simulations: int) -> None:
    heads = "| question | scenario | share | 99 % of chance | wanted | |\n" + "| --- " * 6 + "|\n"
    Path(__file__).with_name("verdicts.md").write_text(
        "# Simulated studies\n\n"
        f"Written by `make verdicts`: {simulations} runs of each, from the study's plan and stop "
        "rule to the sentences of the report.\n\n"
        + heads
        + "".join(f"{line.row}\n" for line in lines),
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
