"""The end of a terminal's report and the head of a page: five lines for whoever decides.

Of one use they are the use's own; of several they say what holds for all of them together.
Nothing is said that ``statements_of`` did not decide; where it decided nothing, that is said.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import unmarked
from tunnelmark.analysis.units import unit
from tunnelmark.model.block import Stratum
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.decision import breaks, cpu_share, overhead
from tunnelmark.report.names import names
from tunnelmark.report.sections import Section
from tunnelmark.report.show import NOTHING
from tunnelmark.report.statements import Statement
from tunnelmark.report.summary import Summary
from tunnelmark.report.uses import NOTHING_OPEN, WITHOUT_RIVAL, Standing, Use

_MOST_TUNNELS: Final = 3
"""Tunnels of which costs and limits are given, where no one is best."""
_MOST_PLACES: Final = 2
_WHOLE: Final = 10
"""From here on figures have no decimals."""
_MOST_UNKNOWN: Final = 4
_ONE: Final = {Standing.BEST: "the best", **WITHOUT_RIVAL}
_NONE_BEST: Final = {
    Standing.TOO_FEW: "not decided, with fewer than 4 repeats",
    Standing.ALIKE: "no relevant difference",
    Standing.OPEN: "no tunnel is clearly best",
}
_MODELS: Final = "how far the models are from real tunnels: this was simulated"
_NOTHING_FOR: Final = {
    Standing.BROKEN: "no tunnel carried every point of",
    Standing.UNMEASURED: "no valid trial of",
}


def brief(summary: Summary) -> list[tuple[str, str]]:
    """Return label and text of each line; none where nothing was compared."""
    if not summary.uses:
        return []
    if len(summary.uses) == 1:
        found, stratum = _one(summary.uses[0]), summary.uses[0].stratum
    else:
        overall = _Overall(summary)
        found, stratum = overall.lines(), overall.stratum
    # All are of one stratum: what is behind every name says nothing there.
    return [(label, unmarked(text, stratum)) for label, text in found if text != NOTHING]


def _one(use: Use) -> list[tuple[str, str]]:
    settings = "" if use.settings == NOTHING or len(use.recommended) > 1 else f" ({use.settings})"
    costs = [words for words in (use.costs, use.cpu) if words != NOTHING]
    unknowns = [*use.unknowns, *([_MODELS] if use.stratum is Stratum.SIMULATION else [])]
    return [
        ("Choose", f"{use.recommendation}{settings}"),
        ("Better by", use.better_by),
        ("Costs", "; CPU: ".join(costs) if costs else NOTHING),
        ("Breaks first", use.breaks),
        ("Not known", "; ".join(unknowns) or NOTHING_OPEN),
    ]


@dataclass(frozen=True)
class _Overall:
    """All uses of a study together.

    Tunnels of different strata are no rivals: the stratum of most uses is the one spoken of.
    """

    summary: Summary

    def lines(self) -> list[tuple[str, str]]:
        return [
            ("Choose", self._choose()),
            ("Better by", self._better_by()),
            ("Costs", self._each(self._costs)),
            ("Breaks first", self._each(self._breaks)),
            ("Not known", self._unknown()),
        ]

    @cached_property
    def stratum(self) -> Stratum:
        strata = [use.stratum for use in self.summary.uses]
        return max(dict.fromkeys(strata), key=strata.count)

    @cached_property
    def uses(self) -> list[Use]:
        return [use for use in self.summary.uses if use.stratum is self.stratum]

    @cached_property
    def working(self) -> list[Use]:
        """Uses that some tunnel carried."""
        return [use for use in self.uses if use.recommended]

    @cached_property
    def rivals(self) -> list[str]:
        return list(dict.fromkeys(name for use in self.uses for name in use.rivals))

    @cached_property
    def best(self) -> list[str]:
        """Tunnels that are the best, or among the best, in all uses that some tunnel carried."""
        return [n for n in self.rivals if all(n in use.recommended for use in self.working)]

    @cached_property
    def shown(self) -> list[str]:
        """Tunnels whose costs are given."""
        if not self.working:
            return []
        several = dict.fromkeys(n for use in self.working for n in use.recommended)
        return (self.best or list(several))[:_MOST_TUNNELS]

    def _choose(self) -> str:
        without = [
            f"{words} {_titles(own)}"
            for standing, words in _NOTHING_FOR.items()
            if (own := [use for use in self.uses if use.standing is standing])
        ]
        if not self.working:
            return f"none: {'; '.join(without)}"
        also = "".join(f"; {words}" for words in without)
        if len(self.best) == 1:
            return f"{self._single(self.best[0])}{also}"
        if self.best:
            return f"{self._no_one()}: {names(self.best, last='or')}{also}"
        each: dict[tuple[str, ...], list[Use]] = {}
        for use in self.working:
            each.setdefault(use.recommended, []).append(use)
        said = [f"{names(found, last='or')} for {_titles(own)}" for found, own in each.items()]
        return f"by use: {'; '.join(said)}{also}"

    def _single(self, name: str) -> str:
        settings = next((u.settings for u in self.working if u.recommended == (name,)), NOTHING)
        shown = name if settings == NOTHING else f"{name} ({settings})"
        if len(self.rivals) == 1:
            return f"{shown}, {WITHOUT_RIVAL[Standing.ONLY]}"
        said = [
            f"{words} for {_titles(own)}"
            for standing, words in _ONE.items()
            if (own := [use for use in self.working if use.standing is standing])
        ]
        rest = [use for use in self.working if use.standing not in _ONE]
        if rest:
            said.append(f"not clearly worse for {'anything else' if said else _titles(rest)}")
        return f"{shown}, {' and '.join(said)}"

    def _no_one(self) -> str:
        found = {use.standing for use in self.working}
        # What is open for one use is not decided for all.
        for standing in (Standing.OPEN, Standing.TOO_FEW):
            if standing in found:
                return _NONE_BEST[standing]
        return _NONE_BEST[Standing.ALIKE]

    def _better_by(self) -> str:
        if not self.working or len(self.rivals) == 1:
            return NOTHING
        if len(self.best) > 1:
            others = [n for n in self.rivals if n not in self.best]
            worse = [n for n in others if any(n in use.worse for use in self.working)]
            unknown = [n for n in others if n not in worse]
            words = [f"no clear difference between {names(self.best)}"]
            words += [f"{names(worse)} clearly worse or broken somewhere"] if worse else []
            words += [f"{names(unknown)} not measured for every use"] if unknown else []
            return "; ".join(words)
        said = [(name, self._won(name)) for name in self.shown]
        if len(said) == 1:
            return said[0][1]
        return "; ".join(f"{name}: {won}" for name, won in said if won != NOTHING) or NOTHING

    def _won(self, name: str) -> str:
        """Say by how much a tunnel is better than the nearest one that it beats, by metric."""
        found: dict[tuple[str, str], list[float]] = {}
        for use in self.working:
            won = [
                one
                for one in self._statements(use)
                if one.rival is not None
                and one.decision.outcome == "differs"
                and name in {one.tunnel, one.rival}
                and one.winner == name
            ]
            if won:
                least = min(won, key=lambda one: abs(one.seen_by(name)[0]))
                key = (least.decision.metric, least.loser)
                found.setdefault(key, []).append(least.seen_by(name)[0])
        said: dict[str, list[str]] = {}
        for (metric, loser), values in found.items():
            said.setdefault(loser, []).append(_moved(metric, values))
        words = [f"{', '.join(each)} than {loser}" for loser, each in said.items()]
        return "; ".join(words) or NOTHING

    def _costs(self, name: str) -> str:
        moved: dict[str, list[float]] = {}
        undecided: dict[str, str] = {}
        alike: dict[str, None] = {}
        for use in self.uses:
            for one in self._statements(use):
                if (one.tunnel, one.rival, one.decision.metric) != (name, None, use.metric):
                    continue
                if one.decision.outcome == "differs":
                    moved.setdefault(one.decision.metric, []).append(one.decision.value)
                elif one.decision.outcome == "alike":
                    alike[one.decision.metric] = None
                else:
                    undecided[one.decision.metric] = _seen(one)
        words = [_moved(metric, values) for metric, values in moved.items()]
        words += [text for metric, text in undecided.items() if metric not in moved]
        same = [METRICS[m].title for m in alike if m not in {*moved, *undecided}]
        words += [f"no relevant difference in {names(same)}"] if same else []
        against = [f"against no tunnel: {', '.join(words)}"] if words else []
        headers = dict.fromkeys(self._overhead(s, name) for s in self._sections)
        packets = [f"per packet {text}" for text in headers if text != NOTHING][:_MOST_PLACES]
        cpu = cpu_share([p for s in self._sections for p in _points(s, name)])
        return (
            "; ".join([*against, *packets, *([] if cpu == NOTHING else [f"CPU {cpu}"])]) or NOTHING
        )

    @staticmethod
    def _overhead(section: Section, name: str) -> str:
        return overhead(_points(section, name), section.fragmentation.get(name))

    def _breaks(self, name: str) -> str:
        found: dict[str, list[str]] = {}
        for section in self._sections:
            if _points(section, name):
                own = [
                    one
                    for one in self.summary.statements
                    if (one.section, one.tunnel, one.rival) == (section.key, name, None)
                ]
                text = breaks(name, section.parts, section, own)
                found.setdefault(text, []).append(section.title)
        if len(found) == 1:
            return next(iter(found))
        said = [f"{names(places)}: {text}" for text, places in found.items()]
        more = len(said) - _MOST_PLACES
        rest = [f"{more} more in the report"] if more > 0 else []
        return "; ".join([*said[:_MOST_PLACES], *rest]) or NOTHING

    def _unknown(self) -> str:
        found: dict[str, list[Use]] = {}
        for use in self.uses:
            for phrase in use.unknowns:
                found.setdefault(phrase, []).append(use)
        # What is open for most uses first.
        ranked = sorted(found.items(), key=lambda item: -len(item[1]))
        said = [
            phrase if len(own) == len(self.uses) else f"{phrase} ({_titles(own)})"
            for phrase, own in ranked
        ]
        if len(said) > _MOST_UNKNOWN:
            said = [*said[:_MOST_UNKNOWN], f"{len(said) - _MOST_UNKNOWN} more in the report"]
        others = len(self.summary.uses) - len(self.uses)
        if others:
            said.append(f"how tunnels of other places compare ({others} more uses in the report)")
        if self.stratum is Stratum.SIMULATION:
            said.append(_MODELS)
        if len(self._sections) == 1:
            said.append(f"other lines and devices than {self._sections[0].title}")
        return "; ".join(said) or NOTHING_OPEN

    @cached_property
    def _sections(self) -> list[Section]:
        keys = {use.section for use in self.uses}
        return [section for section in self.summary.sections if section.key in keys]

    def _statements(self, use: Use) -> list[Statement]:
        return [
            one
            for one in self.summary.statements
            if (one.section, one.part) == (use.section, use.kind)
        ]

    def _each(self, words: Callable[[str], str]) -> str:
        """Return what is said of each tunnel, without its name where all have the same."""
        said = {name: words(name) for name in self.shown}
        if len(set(said.values())) == 1:
            return next(iter(said.values()))
        return "; ".join(f"{n}: {text}" for n, text in said.items() if text != NOTHING) or NOTHING


def _points(section: Section, name: str) -> list[PointEstimates]:
    return [p for part in section.parts for p in part.family.points if p.tunnel == name]


def _titles(uses: Sequence[Use]) -> str:
    """Return the workloads of some uses; with several places, how many uses they are at each."""
    found: dict[str, int] = {}
    for use in uses:
        found[use.workload] = found.get(use.workload, 0) + 1
    said = [title if count == 1 else f"{title} at {count} places" for title, count in found.items()]
    return names(said)


def _moved(metric: str, values: Sequence[float]) -> str:
    """Return ``RTT, median 0.4 to 2.1 % higher`` of differences as they were decided."""
    relative = METRICS[metric].scale == "log"
    shown = unit(metric)
    factor = 100.0 if relative else shown.factor
    name = "%" if relative else ("points" if shown.name == "%" else shown.name)
    low, high = (end * factor for end in (min(values), max(values)))
    title = METRICS[metric].title
    if math.isinf(high):
        # What is set against 0 has no number.
        least = "" if math.isinf(low) else f"{_plain(low)} {name} to "
        return f"{title} {least}infinitely higher"
    if low < 0 < high:
        text = f"{_plain(-low)} {name} lower to {_plain(high)} {name} higher"
        return f"{title} {' '.join(text.split())}"
    ends = list(dict.fromkeys(_plain(end) for end in sorted((abs(low), abs(high)))))
    return " ".join(
        f"{title} {' to '.join(ends)} {name} {'lower' if high < 0 else 'higher'}".split()
    )


def _plain(value: float) -> str:
    """Return two significant digits, and every digit before the point."""
    return f"{value:.0f}" if value >= _WHOLE else f"{value:.2g}"


def _seen(one: Statement) -> str:
    """Return what was seen of a difference that is not decided."""
    title = METRICS[one.decision.metric].title
    relative = METRICS[one.decision.metric].scale == "log"
    # Repeats that are all alike have no interval: the figures themselves are what there is to say.
    if one.decision.contrast.spread.error == 0 and not relative and len(one.points) == 1:
        found = one.points[0].estimates.get(one.decision.metric)
        if found is not None and one.decision.value:
            shown = unit(found.metric)
            ends = (found.value, found.value - one.decision.value)
            its, bare = (f"{_plain(end * shown.factor)} {shown.name}".rstrip() for end in ends)
            return f"{title} {its} instead of {bare}, the same in every repeat (too few to decide)"
    return f"no clear difference in {title}"
