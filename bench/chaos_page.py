"""The table of ``make chaos``."""

import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from chaos_outcome import Outcome, latest
from chaos_run import ITSELF
from chaos_study import Tally

_HEAD: Final = """\
# Chaos

{runs} runs of two tunnels each, several at a time; something was done to each at a random moment;
{missed} more had ended before theirs. Linux {linux}, {cores} cores.
Of a run that was repeated the last time counts; {before} had a fault in an earlier version.
A run took {median:.0f} s (median), {most:.0f} s at most. Seeds: {seeds}.
Made by `make chaos`, which adds to it; `--seed N --only I` does run I of seed N again.

What must hold after each: no process, namespace, mount, control group or file of it is left; no
trial that was reported as done is lost or made again; no valid trial says what a line of 1 Mbit/s,
20 ms and 5 % loss one way cannot do; its resume, and a run beside it, end complete.{lost}

Stopped, starved (2 % of a core) and filled lasted 1 to 30 s. A clock was stepped (since boot, by a
time namespace) between the death of a run and its resume: Linux sets the clock of a time namespace
only before its first process, and that of the day in none, so none was stepped under a live run.

"""
_COLUMNS: Final = (
    "runs",
    "to the run itself",
    "bring-ups tried again",
    "invalid trials",
    "resumed",
    "tunnels lost",
    "with a fault",
)


def line(one: Outcome) -> str:
    """Return one run in a line."""
    needed = [
        f"{count} {words}"
        for count, words in (
            (one.attempts, "failed bring-ups"),
            (one.invalid, "invalid trials"),
            (one.resumes, "resumes"),
        )
        if count
    ]
    head = f"run {one.seed}/{one.number}: {one.struck.victim or 'nothing'} {one.strike.reported}"
    return (
        f"{head} ({', '.join([f'{one.seconds:.0f} s', *needed])}): {'; '.join(one.faults) or 'ok'}"
    )


def page(drawn: Sequence[Outcome]) -> str:
    """Return the page of all runs; at least one was struck."""
    last = latest(drawn)
    outcomes = [one for one in last if not one.missed]
    again = {(one.seed, one.number) for one in drawn if one.faults and one not in last}
    together = sum((one.tally for one in outcomes), Tally())
    seeds = Counter(one.seed for one in outcomes)
    times = sorted(one.seconds for one in outcomes)
    head = _HEAD.format(
        runs=len(outcomes),
        missed=len(last) - len(outcomes),
        before=len(again),
        lost=_lost(together),
        seeds=", ".join(f"{seed} ({count} runs)" for seed, count in seeds.items()),
        linux=platform.release(),
        cores=os.cpu_count(),
        median=median(times),
        most=times[-1],
    )
    lines = head.splitlines()
    lines += _table("what was done", outcomes, lambda one: one.strike.fault)
    lines += _table("in phase", outcomes, lambda one: one.struck.phase or one.strike.phase)
    lines += _table("beside it", outcomes, lambda one: one.strike.beside)
    victims = Counter(one.struck.victim for one in outcomes)
    lines += ["Victims: " + ", ".join(f"{name} {n}" for name, n in victims.most_common()) + "."]
    lost = Counter(words for one in outcomes for words in one.lost_tunnels)
    lines += ["", f"Tunnels lost: {sum(lost.values())}."]
    lines += [f"- {words}, {count} times" for words, count in lost.most_common()]
    lines += ["", f"Runs with a fault: {sum(bool(one.faults) for one in outcomes)}."]
    lines += [f"- {line(one)}" for one in outcomes if one.faults]
    return "\n".join([*lines, ""])


def _lost(together: Tally) -> str:
    if not together.packets:
        return ""
    return (
        f"\n\nOf {together.packets:,} packets of valid trials over UDP {together.lost:,} did not "
        f"come back ({together.lost / together.packets:.2%}); {together.cut_short} of "
        f"{together.over_tcp} valid trials over TCP were cut short by a segment lost three times."
    )


def _table(title: str, outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[str]:
    columns = (title, *_COLUMNS)
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for name in sorted({key(one) for one in outcomes}):
        ones = [one for one in outcomes if key(one) == name]
        figures = (
            len(ones),
            sum(one.struck.victim == ITSELF for one in ones),
            sum(one.attempts for one in ones),
            sum(one.invalid for one in ones),
            sum(one.resumes > 0 for one in ones),
            sum(len(one.lost_tunnels) for one in ones),
            sum(bool(one.faults) for one in ones),
        )
        lines.append(f"| {name} | {' | '.join(map(str, figures))} |")
    return [*lines, ""]
