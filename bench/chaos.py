"""Small runs to which something is done at a random moment; their table into chaos.md.

What became of each is kept beside the page (chaos.jsonl), so that more runs add to it.

Each run measures two tunnels in a place of its own, and one of its processes is killed, stopped or
starved, its disk is filled, or the clock since boot is stepped between its death and its resume.
Beside some of them another run measures, or ``clean`` is called again and again.

What must hold afterwards: nothing of it is left; no trial that was reported as done is lost or made
again; no valid trial says what cannot be (the line's rate, delay and loss are known); a resume ends
complete. No tunnel is lost, since what happened to it once is transient.

Victims are processes of the run alone, by id: its own, its descendants, and what is in its network
namespaces. Needs root, as the namespaces do. ``--seed N --only I`` does run I of seed N again.
"""

import argparse
import contextlib
import itertools
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import chaos_page
import chaos_study
import polars as pl
from chaos_faults import Strike, draw, small_disk, stepped_clock, strike
from chaos_outcome import Outcome, commit, kept, record
from chaos_run import ITSELF, Run, last_line

from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.faults import one_line
from tunnelmark.store import Result

_RUN_LIMIT_S: Final = 900.0
_RESULT_ERROR: Final = 5
_MOST_RESUMES: Final = 2
_CLEAN_EACH_S: Final = 2.0
_REPORTED: Final = ("rtt_min_ns", "rtt_p50_ns", "loss_forward_ratio", "loss_reverse_ratio")
"""Figures that are reported when a trial is done, and are on the disk then."""


def carry_out(folder: Path, seed: int, number: int) -> Outcome:
    """Start a run, strike it, bring it to its end and look at what it left and what it has."""
    dice = random.Random(f"{seed}/{number}")  # noqa: S311 - what to break, no secret
    what = draw(dice)
    day = datetime.now(UTC).date().isoformat()
    outcome = Outcome(seed, number, what, commit=commit(), day=day)
    text = chaos_study.text(what.tunnels, what.repeats, dice.randrange(1 << 31))
    began = time.monotonic()
    with ExitStack() as ending:
        # Short: the paths of daemons' sockets in it have 107 bytes at most (unix(7)).
        short = tempfile.TemporaryDirectory(prefix="tm-chaos-")
        runtime = Path(ending.enter_context(short))
        run = _made(folder / "struck", runtime, text)
        if what.fault == "disk filled":
            ending.enter_context(small_disk(run.results))
        other = _made(folder / "beside", runtime, text) if what.beside == "another run" else None
        try:
            if other is not None:
                other.start(str(other.study))
            _drive(run, outcome)
        except TimeoutError:
            outcome.faults.append(f"hung: no end after {_RUN_LIMIT_S:g} s")
        finally:
            _end(other, outcome)
        outcome.faults += run.leftovers()
        if other is not None:
            outcome.faults += [f"the run beside: {one}" for one in other.leftovers()]
        if not outcome.faults:
            _judge(run, outcome)
        if other is not None and not outcome.faults:
            outcome.faults += [f"the run beside: {one}" for one in _missing(other, what.repeats)]
    outcome.seconds = time.monotonic() - began
    return outcome


def _made(folder: Path, runtime: Path, text: str) -> Run:
    folder.mkdir()
    return Run(folder, runtime, text)


def _drive(run: Run, outcome: Outcome) -> None:
    """Run, strike, and resume what did not end complete."""
    what = outcome.strike
    run.start(str(run.study))
    cleaning = _cleaning(run, outcome) if what.beside == "clean" else contextlib.nullcontext()
    with cleaning:
        if _wait_for_the_moment(run, what, time.monotonic() + _RUN_LIMIT_S):
            outcome.struck = strike(run, what)
        status = run.finish(_RUN_LIMIT_S)
        died = outcome.struck.victim == ITSELF and what.fault in {"killed", "clock stepped"}
        full = what.fault == "disk filled" and status == _RESULT_ERROR
        if not died and status != 0:
            words = last_line(run.errors.read_text(encoding="utf-8", errors="replace"))
            if not full:
                outcome.faults.append(f"exit status {status}: {words}")
            elif "No space left on device" not in words:
                outcome.faults.append(f"a full disk is reported as: {words}")
        if died and what.clean_first:
            _clean_twice(run, outcome)
        while not _complete(run) and run.directory is not None and outcome.resumes < _MOST_RESUMES:
            _resume(run, outcome, died=died)
        # What a killed run left goes with the next one, or with this.
        if died and not outcome.resumes and (wrong := run.clean()):
            outcome.faults.append(wrong)


def _wait_for_the_moment(run: Run, what: Strike, deadline: float) -> bool:
    seen = 0
    while (event := run.next_event(deadline)) is not None:
        seen += event["event"] == "block_phase" and event["phase"] == what.phase
        if seen == what.occurrence:
            time.sleep(what.delay_s)
            return True
    return False


@contextmanager
def _cleaning(run: Run, outcome: Outcome) -> Iterator[None]:
    """Call ``clean`` beside a run, again and again."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(_CLEAN_EACH_S):
            if words := run.clean():
                outcome.faults.append(words)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _clean_twice(run: Run, outcome: Outcome) -> None:
    """Call ``clean`` twice at once: nothing of the dead run may be left."""
    with ThreadPoolExecutor(2) as pool:
        outcome.faults += [words for words in pool.map(lambda _: run.clean(), range(2)) if words]
    if outcome.strike.beside == "nothing":
        outcome.faults += [f"after clean: {one}" for one in run.leftovers(in_results=False)]


def _complete(run: Run) -> bool:
    try:
        result = run.result()
    except TunnelmarkError:
        return False
    return result is not None and result.manifest.outcome == "complete"


def _resume(run: Run, outcome: Outcome, *, died: bool) -> None:
    outcome.resumes += 1
    what = outcome.strike
    stepped = what.fault == "clock stepped" and died
    run.start("--resume", str(run.directory), inside=stepped_clock(what.clock_s) if stepped else ())
    if (status := run.finish(_RUN_LIMIT_S)) != 0:
        words = last_line(run.errors.read_text(encoding="utf-8", errors="replace"))
        outcome.faults.append(f"resume: exit status {status}: {words}")


def _end(other: Run | None, outcome: Outcome) -> None:
    """Wait for the run beside, to which nothing was done."""
    if other is None or other.process is None:
        return
    try:
        status = other.finish(_RUN_LIMIT_S)
    except TimeoutError:
        outcome.faults.append("the run beside hung")
        return
    if status != 0:
        words = last_line(other.errors.read_text(encoding="utf-8", errors="replace"))
        outcome.faults.append(f"the run beside: exit status {status}: {words}")


def _judge(run: Run, outcome: Outcome) -> None:
    """Look at the result."""
    held_up = _held_up(outcome)
    outcome.faults += _missing(run, outcome.strike.repeats, held_up)
    # What cannot be read is among the faults.
    with contextlib.suppress(TunnelmarkError):
        _count(run, outcome, held_up)
    outcome.lost_tunnels = sorted({one for one in outcome.faults if one.startswith("lost tunnel")})


def _count(run: Run, outcome: Outcome, held_up: chaos_study.HeldUp | None) -> None:
    if (result := run.result()) is not None:
        blocks = result.blocks.values()
        outcome.attempts = sum(one.reason is not None for b in blocks for one in b.attempts)
        rows = result.trials().filter(pl.col("path") == "total")
        outcome.invalid = rows.filter(~pl.col("valid")).height
        outcome.tally = chaos_study.tally(rows, held_up)


def _held_up(outcome: Outcome) -> chaos_study.HeldUp | None:
    struck = outcome.struck
    if not struck.tunnel or outcome.strike.fault not in {"stopped", "starved"}:
        return None
    return chaos_study.HeldUp(struck.victim, struck.began, struck.ended)


def _missing(run: Run, repeats: int, held_up: chaos_study.HeldUp | None = None) -> list[str]:
    """Return what a result has not that it must have, and what it says that cannot be."""
    try:
        result = run.result()
        if result is None:
            return ["no result directory"] if run.of("run_started") else []
        rows = result.trials()
    except TunnelmarkError as error:
        return [f"result: {one_line(error)}"]
    rows = rows.filter(pl.col("path") == "total")
    valid = rows.filter(pl.col("valid"))
    kept = set(valid["trial_id"])
    faults = [f"lost: trial {name}" for name in sorted(run.finished() - kept)]
    if (found := len(run.directories)) != 1:
        faults.append(f"{found} result directories")
    if valid.height != len(kept):
        faults.append(f"{valid.height} valid rows of {len(kept)} trials")
    faults += _done_again(run, result) + _otherwise_on_disk(run, valid)
    faults += [f"lost tunnel: {b.tunnel}: {b.error}" for b in result.blocks.values() if b.error]
    wanted = 2 * chaos_study.POINTS_PER_TUNNEL * repeats
    if len(kept) != wanted:
        faults.append(f"{len(kept)} valid trials, must be {wanted}")
    if result.manifest.outcome != "complete":
        faults.append(f"outcome {result.manifest.outcome}")
    return faults + chaos_study.wrong_figures(rows, held_up)


def _done_again(run: Run, result: Result) -> list[str]:
    """Return the trials that were valid more than once; those of a disproved tunnel count not."""
    void = {key for b in result.blocks.values() for one in b.attempts for key in one.trials or ()}
    done = Counter(
        event["trial_id"]
        for event in run.of("trial_done")
        if event["valid"] and f"{event['trial_id']}-{event['attempt']}" not in void
    )
    return [f"measured again: {name}" for name, times in sorted(done.items()) if times > 1]


def _otherwise_on_disk(run: Run, valid: pl.DataFrame) -> list[str]:
    """Return the figures that were reported and are others on the disk."""
    rows = {(row["trial_id"], row["attempt"]): row for row in valid.iter_rows(named=True)}
    return [
        f"{event['trial_id']}: {name} reported as {said}, on the disk {row[name]}"
        for event in run.of("trial_done")
        if (row := rows.get((event["trial_id"], event["attempt"]))) is not None
        for name in _REPORTED
        if (said := event["figures"].get(name)) != row[name]
    ]


def main() -> int:
    """Strike so many runs; exit status 1 if any of them has a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed if not given")
    parser.add_argument("--only", type=int, help="number of the one run that is done")
    parser.add_argument("--side", type=int, default=4, help="runs side by side, each on its own")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("chaos.md"))
    parser.add_argument("--keep", type=Path, help="keep everything of each run in this folder")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    # Some more, since a run may have ended before its moment.
    numbers = itertools.islice(itertools.count(1), 2 * given.runs + 10)
    if given.only is not None:
        given.runs, numbers = 1, itertools.islice(itertools.count(given.only), 1)
    with ExitStack() as ending:
        keep = given.keep
        if keep is None:
            keep = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="tm-chaos-")))
        return _many(keep, seed, _until_stopped(numbers), given)


def _until_stopped(numbers: Iterator[int]) -> Iterator[int]:
    """Yield numbers until a signal; what is under way ends, a second signal ends it at once."""
    stopped = threading.Event()

    def stop(number: int, _frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)
        print("no further run is started", flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return itertools.takewhile(lambda _: not stopped.is_set(), numbers)


def _many(keep: Path, seed: int, numbers: Iterator[int], given: argparse.Namespace) -> int:
    file = given.out.with_suffix(".jsonl")
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(given.side) as pool:
        waiting: set[Future[Outcome]] = set()
        while len(outcomes) < given.runs:
            while len(waiting) < min(given.side, given.runs - len(outcomes)):
                if (number := next(numbers, None)) is None:
                    break
                waiting.add(pool.submit(_one, keep, seed, number))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in (future.result() for future in done):
                record(file, one)
                if one.missed:
                    continue
                outcomes.append(one)
                print(chaos_page.line(one), flush=True)
                given.out.write_text(chaos_page.page(kept(file)), encoding="utf-8")
    unlikely = sum((one.tally for one in outcomes), chaos_study.Tally()).unlikely()
    for words in unlikely:
        print(f"all runs together: {words}")
    if len(outcomes) < given.runs:
        print(f"{len(outcomes)} of {given.runs} runs were struck")
        return 1
    return 1 if unlikely or any(one.faults for one in outcomes) else 0


def _one(keep: Path, seed: int, number: int) -> Outcome:
    folder = keep / f"run-{number}"
    folder.mkdir(parents=True)
    return carry_out(folder, seed, number)


if __name__ == "__main__":
    sys.exit(main())
