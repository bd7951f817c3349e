"""What a run shows while it runs: a live table, plain lines, JSON, or nothing."""

import dataclasses
import json
import math
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tunnelmark.analysis.units import Unit, unit
from tunnelmark.cli.unread import let_go, tell
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.quantity import percent
from tunnelmark.report.show import digits, shown_duration
from tunnelmark.run.events import (
    BlockPhase,
    Event,
    JobDone,
    Listener,
    RunEnded,
    RunStarted,
    TrialDone,
    TrialProgress,
)


@contextmanager
def display(*, as_json: bool, quiet: bool, lines: bool = False) -> Iterator[Listener]:
    """Return the listener for this kind of output; into a pipe, only the result is written.

    It falls silent when what it prints cannot be written any more: a run does not end by that.
    """
    if as_json:
        yield _until_unwritable(_print_json)
    elif lines:
        yield _until_unwritable(_print_line)
    elif not quiet and (sys.stdout.isatty() or sys.stderr.isatty()):
        screen = _Screen()
        console = Console(stderr=not sys.stdout.isatty())
        with Live(
            screen, console=console, refresh_per_second=4, transient=True, redirect_stderr=False
        ):
            yield screen.take
    else:
        yield lambda _event: None


def _until_unwritable(listener: Listener) -> Listener:
    writable = True

    def take(event: Event) -> None:
        nonlocal writable
        if not writable:
            return
        try:
            listener(event)
        except OSError as error:
            writable = False
            let_go()
            # That who reads a pipe has enough of it is nothing to tell.
            if not isinstance(error, BrokenPipeError):
                why = error.strerror or str(error)
                tell(
                    f"tunnelmark: progress cannot be shown any more: {why}; the run goes on",
                    err=True,
                )

    return take


def _print_json(event: Event) -> None:
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).lower()
    document = {"event": name, **dataclasses.asdict(event)}
    click.echo(json.dumps(document, default=str))


def _print_line(event: Event) -> None:
    line = describe(event)
    if line:
        click.echo(line)


def trials(least: int, most: int) -> str:
    """Return ``144 to 216 trials``, or ``80 trials`` where it can be no others."""
    return f"{least} trials" if least == most else f"{least} to {most} trials"


def describe(event: Event) -> str | None:
    """Return one line about an event; None for those that only the live display shows."""
    match event:
        case RunStarted():
            skipped = "".join(f"\nskipped {label}: {why}" for label, why in event.skipped)
            count = trials(event.trials_min, event.trials_max)
            return (
                f"{event.study}: {event.blocks} block{'s' * (event.blocks != 1)}, {count}, "
                f"about {shown_duration(event.expected_s)}, into {event.directory}{skipped}"
            )
        case BlockPhase():
            why = f": {event.message}" if event.message else ""
            which = f" (bring-up {event.bring_up})" if event.phase in {"lab", "again"} else ""
            return f"{event.tunnel}, {event.link}: {event.phase}{which}{why}"
        case TrialDone():
            verdict = "" if event.valid else f" INVALID: {'; '.join(event.reasons)}"
            return (
                f"  {event.trials_done}/{event.trials_expected} {event.tunnel}, "
                f"{event.workload} #{event.repeat}: {_figures(event)}{verdict} "
                f"({shown_duration(event.time_left_s)} left)"
            )
        case JobDone():
            failed = f" FAILED: {event.error}" if event.error else ""
            return (
                f"  job {event.jobs_done}/{event.jobs_expected} {event.tunnel}, {event.link}: "
                f"{_trials(event)}{failed} ({shown_duration(event.time_left_s)} left)"
            )
        case RunEnded():
            return _ended(event)
        case _:
            return None


class _Screen:
    """The live display; rich asks for it several times a second."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._phase: BlockPhase | None = None
        self._last: TrialDone | None = None
        self._job: JobDone | None = None
        self._progress: TrialProgress | None = None
        self._valid = 0
        self._invalid = 0
        self._recent: list[str] = []
        self._reported_at = time.monotonic()

    def take(self, event: Event) -> None:
        """Record an event."""
        match event:
            case RunStarted():
                self._started = event
            case BlockPhase():
                self._phase = event
                if event.phase in {"failed", "again"}:
                    again = "trying again: " if event.phase == "again" else ""
                    self._recent.append(f"✗ {event.tunnel}: {again}{event.message}")
            case TrialProgress():
                self._progress = event
            case TrialDone():
                self._last = event
                self._progress = None
                self._reported_at = time.monotonic()
                self._valid += event.valid
                self._invalid += not event.valid
                mark = "✓" if event.valid else "✗"
                what = _figures(event) if event.valid else "; ".join(event.reasons)
                self._recent.append(f"{mark} {event.tunnel}, {event.workload}: {what}")
            case JobDone():
                self._job = event
                self._reported_at = time.monotonic()
                self._invalid += event.invalid_trials
                mark, what = ("✗", event.error) if event.error else ("✓", _trials(event))
                self._recent.append(f"{mark} {event.tunnel}, {event.link}: {what}")
            case RunEnded():
                pass
        self._recent = self._recent[-6:]

    def __rich__(self) -> Group:
        """Draw it."""
        if self._started is None:
            return Group(Text("checking all drivers …"))
        done = self._last.trials_done if self._last else 0
        expected = self._last.trials_expected if self._last else self._started.trials_min
        left = self._last.time_left_s if self._last else self._started.expected_s
        left = max(0.0, left - (time.monotonic() - self._reported_at))
        within = self._progress.done_ratio if self._progress else 0.0
        what = "trial"
        if self._job is not None:
            done, expected, what = self._job.jobs_done, self._job.jobs_expected, "job"
            left = max(0.0, self._job.time_left_s - (time.monotonic() - self._reported_at))
        head = Table.grid(padding=(0, 1))
        head.add_row(
            Text(self._started.study, style="bold"),
            ProgressBar(total=max(expected, 1), completed=done + within, width=24),
            f"{what} {min(done + 1, expected)} of {expected}",
            f"{shown_duration(left)} left",
            Text(f"{self._invalid} invalid", style="red") if self._invalid else "",
        )
        phase = self._phase
        state = f"{phase.tunnel}, {phase.link}: {phase.phase}" if phase else ""
        if phase and phase.phase == "waiting":
            state = f"waiting: {phase.message}"
        lines = [Text(line, overflow="ellipsis", no_wrap=True) for line in self._recent]
        return Group(head, Text(state, style="cyan"), *lines)


def _ended(event: RunEnded) -> str:
    done = (
        f"{event.outcome}: {event.valid_trials} valid and {event.invalid_trials} invalid "
        f"trials in {shown_duration(event.wall_s)}"
    )
    if not event.measuring_s:
        return done
    share = event.measuring_s / event.wall_s if event.wall_s else 0
    return f"{done}, {percent(share)} of it measuring" + "".join(
        f"\n  {place.describe()}" for place in event.places
    )


def _trials(event: JobDone) -> str:
    invalid = f" and {event.invalid_trials} invalid" if event.invalid_trials else ""
    on = f" on {event.worker}" if event.worker else ""
    return f"{event.valid_trials} valid{invalid} trials{on}"


_SHOWN: Final = {"goodput_bit_s": "goodput", "rtt_p50_ns": "RTT", "loss_forward_ratio": "loss"}
"""The figures shown of a trial beside its deciding metric, and their names."""


def _figures(event: TrialDone) -> str:
    parts = []
    for name in dict.fromkeys((event.metric, *_SHOWN)):
        value = event.figures.get(name)
        if value is not None and math.isfinite(value):
            known = METRICS.get(name)
            title = _SHOWN.get(name) or (known.title if known else name)
            shown = unit(name) if known else Unit(1.0, "")
            value *= shown.factor
            parts.append(f"{title} {value:.{digits(value, None)}f} {shown.name}".rstrip())
    return ", ".join(parts) or "no figures"
