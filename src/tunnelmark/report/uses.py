"""The first page: for each use of a study the tunnel to take, what it costs, what is not known.

A use is a workload over a link on a device. Tunnels of different strata (namespaces, emulated
machines) are no rivals, nor are those with another number of clients, so each of these is a use of
its own. Pure; nothing is said that ``statements_of`` did not decide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import marked
from tunnelmark.analysis.testing import FEWEST
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.decision import ALIKE, blocks_of, breaks, changes, cpu_share, mtu, overhead
from tunnelmark.report.names import names
from tunnelmark.report.sections import Part, Section
from tunnelmark.report.show import NOTHING, difference
from tunnelmark.report.statements import Statement, leading_metric

MOST_SETTINGS: Final = 3
"""Tunnels between which there is no clear difference whose settings and costs are given."""
NOTHING_OPEN: Final = "nothing is left open"


class Standing(StrEnum):
    """What the run decided about the tunnels of a use."""

    BEST = "best"
    """One is better than every other, or the only one that is not clearly worse or broken."""
    ONLY = "only"
    """One tunnel was measured, so nothing sets it against another."""
    ALONE = "alone"
    """Several work, of which one has the figure that tunnels are set against each other by."""
    ALIKE = "alike"
    """Several, between which no difference is relevant."""
    OPEN = "open"
    """Several, between which the figures do not decide."""
    TOO_FEW = "too few"
    """Several, with fewer repeats than a verdict needs."""
    BROKEN = "broken"
    """None carried every point."""
    UNMEASURED = "unmeasured"
    """None has a valid trial."""


WITHOUT_RIVAL: Final = {
    Standing.ONLY: "the only tunnel with valid trials",
    Standing.ALONE: "the only tunnel with a comparable figure",
}


@dataclass(frozen=True)
class Use:
    """What to choose for one use, in words for the first page."""

    section: str
    """Key of the section."""
    kind: str
    """Kind of the workload."""
    place: str
    workload: str
    rivals: tuple[str, ...]
    """All tunnels of the use, the broken ones too."""
    stratum: Stratum
    """Of all of them."""
    standing: Standing
    metric: str | None
    """By which tunnels are set against each other; None: none compares them."""
    recommended: tuple[str, ...]
    """One tunnel, or those between which no clear difference was found; none where none works."""
    worse: tuple[str, ...]
    """Those that another one clearly beats, and the broken ones."""
    clear: bool
    """Whether it is one, better than every other."""
    recommendation: str
    better_by: str
    settings: str
    costs: str
    cpu: str
    breaks: str
    unknowns: tuple[str, ...]
    """What the run leaves open, a phrase for each."""

    @property
    def unknown(self) -> str:
        """Return what the run leaves open, in one line."""
        return "; ".join(self.unknowns) or NOTHING_OPEN

    @property
    def title(self) -> str:
        """Return ``UDP echo over 8 Mbit/s 41 ms``."""
        return f"{self.workload} over {self.place}"

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return label and text of all but the recommendation."""
        return (
            ("Better by", self.better_by),
            ("Settings", self.settings),
            ("Costs, against no tunnel", self.costs),
            ("CPU", self.cpu),
            ("Breaks first", self.breaks),
            ("Not known", self.unknown),
        )


def uses_of(
    sections: Sequence[Section],
    blocks: Sequence[BlockRecord],
    statements: Sequence[Statement],
    skipped: Sequence[str] = (),
) -> tuple[Use, ...]:
    """Return one entry for each use that has a tunnel; ``skipped`` could not be run here."""
    found = []
    for section in sections:
        for part in section.parts:
            leagues = {p.tunnel: p.league for p in part.family.points if not p.is_baseline}
            judge = _Judge(section, part, blocks, statements, skipped)
            for league in dict.fromkeys(leagues.values()):
                rivals = [name for name, its in leagues.items() if its == league]
                found.append(judge.use(rivals, *league))
    return tuple(found)


@dataclass(frozen=True)
class _Judge:
    section: Section
    part: Part
    blocks: Sequence[BlockRecord]
    all_statements: Sequence[Statement]
    skipped: Sequence[str]

    def use(self, rivals: Sequence[str], stratum: Stratum, load: str) -> Use:
        seen = [name for name in rivals if any(point.valid for point in self._points(name))]
        having = self._with_figures(rivals)
        whole = [name for name in seen if not self._broken(name)]
        working = [name for name in whole if name in having] or whole
        beaten = {one.loser for one in self._clear_pairs(working)}
        best = [name for name in working if name not in beaten]
        clear = len(best) == 1 and len(self._won(best[0], working)) == len(working) - 1 > 0
        shown = best[:MOST_SETTINGS]
        alone = len(working) == 1 < len(whole)
        standing = Standing.ALONE if alone else self._standing(best, seen, clear=clear)
        return Use(
            section=self.section.key,
            kind=self.part.family.kind,
            place=marked(self.section.title, stratum),
            workload=f"{self.part.title} ({load})" if load else self.part.title,
            rivals=tuple(rivals),
            stratum=stratum,
            standing=standing,
            metric=self.metric,
            recommended=tuple(best),
            worse=tuple(n for n in seen if n in beaten or self._broken(n)),
            clear=clear,
            recommendation=_recommendation(standing, best),
            better_by=self._better_by(best, working, clear=clear),
            settings=_each(shown, self._settings),
            costs=_each(shown, self._costs),
            cpu=_each(shown, lambda name: cpu_share(self._points(name))),
            breaks=_each(shown, self._breaks),
            unknowns=tuple(self._unknowns(rivals, best, having)),
        )

    @property
    def metric(self) -> str | None:
        return leading_metric(self.part.family)

    @property
    def statements(self) -> list[Statement]:
        """Return what was decided of this use."""
        key = (self.section.key, self.part.family.kind)
        return [one for one in self.all_statements if (one.section, one.part) == key]

    def _points(self, name: str) -> list[PointEstimates]:
        return [p for p in self.part.family.points if p.tunnel == name]

    def _broken(self, name: str) -> bool:
        return any(point.broken for point in self._points(name))

    def _with_figures(self, rivals: Sequence[str]) -> list[str]:
        """Return those that have a figure to be set against others by."""
        metric = self.metric
        return [
            name
            for name in rivals
            if metric is None or any(metric in p.estimates for p in self._points(name))
        ]

    def _pairs(self, among: Sequence[str]) -> list[Statement]:
        return [one for one in self.statements if one.tunnel in among and one.rival in among]

    def _clear_pairs(self, among: Sequence[str]) -> list[Statement]:
        return [one for one in self._pairs(among) if one.decision.outcome == "differs"]

    def _won(self, name: str, among: Sequence[str]) -> list[Statement]:
        """Return the clear differences in which ``name`` has the better figure."""
        pairs = (one for one in self._clear_pairs(among) if name in {one.tunnel, one.rival})
        return [one for one in pairs if one.loser != name]

    def _standing(self, best: Sequence[str], seen: Sequence[str], *, clear: bool) -> Standing:
        if not best:
            return Standing.BROKEN if seen else Standing.UNMEASURED
        if len(seen) == 1:
            return Standing.ONLY
        if clear or len(best) == 1:
            return Standing.BEST
        pairs = self._pairs(best)
        if _too_few(pairs):
            return Standing.TOO_FEW
        if pairs and all(one.decision.outcome == "alike" for one in pairs):
            return Standing.ALIKE
        return Standing.OPEN

    def _better_by(self, best: Sequence[str], working: Sequence[str], *, clear: bool) -> str:
        if not best or len(working) == 1 or self.metric is None:
            return NOTHING
        title = METRICS[self.metric].title
        won = [one for name in best for one in self._won(name, working)]
        if not won:
            return f"{title}: {self._between(best)}"
        least = min(won, key=lambda one: abs(one.seen_by(one.winner)[0]))
        against = f"{difference(least.decision.metric, *least.seen_by(least.winner))} against"
        if clear:
            nearest = " (the nearest)" if len(won) > 1 else ""
            return f"{title} {against} {least.loser}{nearest}"
        worse = [name for name in working if name not in best]
        between = f"{self._between(best)}; " if len(best) > 1 else ""
        return (
            f"{title}: {between}{names(worse)} clearly worse; smallest margin: {least.winner} "
            f"{against} {least.loser}"
        )

    def _between(self, best: Sequence[str]) -> str:
        pairs = self._pairs(best)
        alike = bool(pairs) and all(one.decision.outcome == "alike" for one in pairs)
        words = "no relevant difference" if alike else "no clear difference"
        return f"{words} between {names(best)}"

    def _settings(self, name: str) -> str:
        block = next(iter(blocks_of(name, self.section, self.blocks)), None)
        agreed = block.negotiated[0] if block is not None and block.negotiated else None
        cipher = [] if agreed is None else [agreed.cipher or "no encryption"]
        largest = mtu(name, self.section, self.blocks)
        return ", ".join([*cipher, *([] if largest == NOTHING else [f"MTU {largest}"])]) or NOTHING

    def _costs(self, name: str) -> str:
        own = [one for one in self.statements if one.tunnel == name and one.rival is None]
        found = {m: changes(own, m) for m in self.part.family.compared}
        statements = {m: change for m, change in found.items() if change != NOTHING}
        # What a tunnel does not change costs nothing: it is named only where nothing else is.
        dear = {m: change for m, change in statements.items() if change != ALIKE}
        words = [f"{METRICS[m].title} {change}" for m, change in (dear or statements).items()]
        header = overhead(self._points(name), self.section.fragmentation.get(name))
        words += [] if header == NOTHING else [f"per packet {header}"]
        return ", ".join(words) or NOTHING

    def _breaks(self, name: str) -> str:
        own = [one for one in self.statements if one.tunnel == name and one.rival is None]
        return breaks(name, [self.part], self.section, own)

    def _unknowns(
        self, rivals: Sequence[str], best: Sequence[str], having: Sequence[str]
    ) -> list[str]:
        """Say what of this use the run leaves open."""
        found = []
        own = [one for one in self.statements if one.tunnel in rivals]
        leading = [one for one in own if one.decision.metric == self.metric]
        if _too_few(leading):
            found.append("whether anything differs: fewer than 4 repeats")
        elif any(not one.decision.contrast.spread.decides for one in leading):
            found.append("whether anything differs: the two clocks are not exact enough")
        else:
            pairs = [one for one in self._pairs(best) if one.decision.outcome == "open"]
            if pairs:
                settle = [one.decision.to_settle for one in pairs]
                most = max((n for n in settle if n is not None), default=None)
                found.append(
                    f"which of {names(best)} is better"
                    + (
                        f": about {most} repeats would settle it"
                        if most and None not in settle
                        else ""
                    )
                )
            unclear = [
                one.tunnel
                for one in leading
                if one.rival is None and one.decision.outcome == "open"
            ]
            if unclear:
                verb = "differs" if len(unclear) == 1 else "differ"
                found.append(f"how {names(unclear)} {verb} from no tunnel")
        if not leading:
            found.append("which tunnel is better: nothing that was measured compares them")
        lacking = [name for name in rivals if any(not p.valid for p in self._points(name))]
        if lacking:
            found.append(f"points without a valid trial, of {names(lacking)}")
        without = [name for name in rivals if name not in having]
        if self.metric is not None and having and without:
            found.append(f"{METRICS[self.metric].title} of {names(without)}: no trial has it")
        if leading and all(one.decision.contrast.spread.bring_ups == 1 for one in leading):
            found.append("the variation between bring-ups")
        ran = {point.label for point in self.part.family.points if point.valid}
        if skipped := [name for name in self.skipped if name not in ran]:
            found.append(f"{names(skipped)}: not run here")
        return found


def _too_few(statements: Sequence[Statement]) -> bool:
    spreads = [one.decision.contrast.spread for one in statements]
    return any(one.repeats < FEWEST and not one.decides for one in spreads)


_NO_CHOICE: Final = {
    Standing.BROKEN: "none: no tunnel carried every point",
    Standing.UNMEASURED: "none: no valid trial",
}
_NO_WINNER: Final = {
    Standing.TOO_FEW: "not decided",
    Standing.ALIKE: "no relevant difference",
    Standing.OPEN: "no tunnel is clearly best",
}


def _recommendation(standing: Standing, best: Sequence[str]) -> str:
    if standing in _NO_CHOICE:
        return _NO_CHOICE[standing]
    if standing in _NO_WINNER:
        return f"{_NO_WINNER[standing]}: {names(best, last='or')}"
    return f"{best[0]}, {WITHOUT_RIVAL[standing]}" if standing in WITHOUT_RIVAL else best[0]


def _each(shown: Sequence[str], words: Callable[[str], str]) -> str:
    """Return what is said of each tunnel, without its name where all have the same."""
    said = {name: words(name) for name in shown}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{name}: {text}" for name, text in said.items()) or NOTHING
