"""Small runs in which a random process is killed or paused at a random moment; into chaos.md.

Each run measures two tunnels in a place of its own. What must hold afterwards: nothing of the run
is left, no trial that was finished is lost, and no tunnel is lost, since what happened to it once
is transient. A run whose own process was killed is resumed, and must then be complete.

Victims are processes of the run alone, by id: its own, its descendants, and what is in its network
namespaces. Needs root, as the namespaces do.
"""

import argparse
import contextlib
import itertools
import json
import os
import platform
import queue
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tunnelmark.hosts.ledger import start_time
from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.store import open_result

TUNNELS: Final = {
    "openvpn": 'kind = "openvpn"\ncipher = "AES-256-GCM"',
    "wireguard": 'kind = "wireguard"\nimplementation = "wireguard-go"',
    "tinc": 'kind = "tinc"',
    "ssh_tun": 'kind = "ssh_tun"',
    "ipsec": 'kind = "ipsec"\nimplementation = "libipsec"',
    "nebula": 'kind = "nebula"',
}
# Figures do not matter here: a busy machine may not make a trial invalid, only what was done to it.
_STUDY: Final = """
format = 1
name = "chaos"
title = "Chaos"
seed = {seed}

[precision]
metric = "rtt_p50_ns"
relative_half_width = "100 %"
min_repeats = {repeats}
max_repeats = {repeats}
bring_ups = {repeats}
max_invalid = 20

[validity]
sender_lateness = "1 s"
link_lateness = "1 s"
steal = "100 %"
starvation = "100 %"

{tunnels}

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 50
payload_bytes = 200
"""
_PHASES: Final = ("lab", "tunnel", "proof", "warm", "trials", "down")
_PAUSE_S: Final = 4.0
_MOST_DELAY_S: Final = 1.5
_ITSELF: Final = "the run itself"
_RUN_LIMIT_S: Final = 400.0
_CONTROLLER_SHARE: Final = 0.2


@dataclass(frozen=True)
class Strike:
    """What is done to a run, and when."""

    tunnels: tuple[str, str]
    repeats: int
    phase: str
    """In the phase of this name …"""
    occurrence: int
    """… when it comes for this time (1-based), each bring-up having its own …"""
    delay_s: float
    """… after so long."""
    controller: bool
    kill: bool
    clean_first: bool
    """After a kill of the run itself: ``clean`` before the resume, else the resume must."""


@dataclass
class Outcome:
    """What became of one run."""

    strike: Strike
    victim: str = ""
    """Name of the program that was struck; empty when the run had ended before."""
    faults: list[str] = field(default_factory=list)
    attempts: int = 0
    """Attempts of bring-ups that were needed beside those of the plan."""
    seconds: float = 0.0
    resumed: bool = False


def plan(dice: random.Random) -> Strike:
    """Draw one."""
    repeats = dice.choice((1, 2))
    first, second = dice.sample(sorted(TUNNELS), 2)
    return Strike(
        tunnels=(first, second),
        repeats=repeats,
        phase=dice.choice(_PHASES),
        occurrence=dice.randint(1, 2 * repeats),
        delay_s=dice.uniform(0, _MOST_DELAY_S),
        controller=dice.random() < _CONTROLLER_SHARE,
        kill=dice.choice((True, False)),
        clean_first=dice.choice((True, False)),
    )


class Run:
    """One run as a process of its own, and what can be found of it on this machine."""

    def __init__(self, folder: Path, strike: Strike, seed: int) -> None:
        """Write the study; nothing is started."""
        self.folder, self.strike = folder, strike
        tunnels = "\n\n".join(f"[[tunnel]]\n{TUNNELS[name]}" for name in strike.tunnels)
        self.study = folder / "study.toml"
        self.study.write_text(
            _STUDY.format(seed=seed, repeats=strike.repeats, tunnels=tunnels), encoding="utf-8"
        )
        (folder / "runtime").mkdir(mode=0o700)
        self.environment = {**os.environ, "TUNNELMARK_RUNTIME": str(folder / "runtime")}
        self.events: list[dict[str, Any]] = []
        self.seen: dict[int, int] = {}
        """Processes that the run had: id and start time."""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.errors = folder / "errors.txt"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start it; its events are read by ``next_event``."""
        with self.errors.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tunnelmark.cli", "run", "--json"),
                    *("--results", str(self.folder / "results"), *words),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
            )
        self._lines = queue.Queue()
        threading.Thread(target=self._read, args=(process, self._lines), daemon=True).start()
        return process

    def next_event(self, deadline: float) -> dict[str, Any] | None:
        """Return the next event; None at the end. ``TimeoutError`` at the deadline."""
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            self._lines.put(None)  # the end stays the end
            return None
        event: dict[str, Any] = json.loads(line)
        self.events.append(event)
        return event

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def run_ids(self) -> set[str]:
        """Ids of the run's sessions."""
        return {path.name for path in (self.folder / "runtime").iterdir()} | {
            event["run_id"] for event in self.of("run_started")
        }

    def processes(self, controller: int) -> dict[int, int]:
        """Return what runs for it now: id and start time of itself and all that it started."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(path.name))
        found, todo = {}, [controller, *self._inhabitants()]
        while todo:
            pid = todo.pop()
            if pid not in found and (started := start_time(pid)) is not None:
                found[pid] = started
                todo += children.get(pid, [])
        self.seen |= found
        return found

    def leftovers(self) -> list[str]:
        """Return what is still there of it."""
        found = [f"process {pid}" for pid, t in self.seen.items() if start_time(pid) == t]
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        names = _words("ip", "netns", "list")
        for run_id in self.run_ids:
            found += [f"namespace {name}" for name in names if name.startswith(run_id)]
            found += [f"mount {line}" for line in mounts.splitlines() if run_id in line]
            found += [f"memory {path}" for path in Path("/dev/shm").glob(f"{run_id}*")]  # noqa: S108
            found += [f"group {path}" for path in Path("/sys/fs/cgroup").rglob(f"{run_id}*")]
        found += [f"ledger {path.name}" for path in (self.folder / "runtime").iterdir()]
        found += [f"part {path}" for path in (self.folder / "results").rglob("*.part")]
        return found

    def _inhabitants(self) -> list[int]:
        names = [n for n in _words("ip", "netns", "list") if n.partition("-")[0] in self.run_ids]
        return [int(word) for name in names for word in _words("ip", "netns", "pids", name)]

    @staticmethod
    def _read(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        for line in process.stdout:
            if line.endswith("}\n"):  # a killed run may have left half a line
                lines.put(line)
        lines.put(None)


def carry_out(folder: Path, strike: Strike, seed: int, dice: random.Random) -> Outcome:
    """Start a run, strike it, and look at what it left and what it has."""
    outcome, run = Outcome(strike), Run(folder, strike, seed)
    began = time.monotonic()
    process = run.start(str(run.study))
    try:
        if _wait_for_the_moment(run, strike, began + _RUN_LIMIT_S):
            outcome.victim = _strike(run, process, strike, dice)
        while run.next_event(began + _RUN_LIMIT_S) is not None:
            pass
    except TimeoutError:
        outcome.faults.append(f"hung: no end after {_RUN_LIMIT_S:g} s")
        process.kill()
    status = process.wait(60)
    outcome.seconds = time.monotonic() - began
    if strike.kill and outcome.victim == _ITSELF:
        _resume(run, outcome)
    elif not outcome.faults and status != 0:
        outcome.faults.append(f"exit status {status}: {_last_line(run.errors)}")
    outcome.faults += run.leftovers()
    outcome.faults += _losses(run, outcome)
    return outcome


def _wait_for_the_moment(run: Run, strike: Strike, deadline: float) -> bool:
    seen = 0
    while (event := run.next_event(deadline)) is not None:
        seen += event["event"] == "block_phase" and event["phase"] == strike.phase
        if seen == strike.occurrence:
            time.sleep(strike.delay_s)
            return True
    return False


def _strike(run: Run, process: "subprocess.Popen[str]", strike: Strike, dice: random.Random) -> str:
    """Kill or pause one process of the run; return the name of its program."""
    for _ in range(20):
        if process.poll() is not None:
            return ""
        found = run.processes(process.pid)
        others = sorted(pid for pid in found if pid != process.pid)
        pid = process.pid if strike.controller or not others else dice.choice(others)
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            if start_time(pid) != found[pid]:
                continue
            os.kill(pid, signal.SIGKILL if strike.kill else signal.SIGSTOP)
        except OSError:
            continue  # it has ended meanwhile
        if not strike.kill:
            time.sleep(_PAUSE_S)
            with contextlib.suppress(ProcessLookupError):
                if start_time(pid) == found[pid]:
                    os.kill(pid, signal.SIGCONT)
        return _ITSELF if pid == process.pid else name
    return ""


def _resume(run: Run, outcome: Outcome) -> None:
    """Bring a run to its end whose own process was killed."""
    if outcome.strike.clean_first:
        words = [sys.executable, "-m", "tunnelmark.cli", "clean"]
        subprocess.run(words, env=run.environment, check=False, capture_output=True, timeout=120)
        outcome.faults += [f"after clean: {left}" for left in run.leftovers() if "part" not in left]
    directory = _directory(run)
    if directory is None:
        return
    outcome.resumed = True
    finished = {event["trial_id"] for event in run.of("trial_done") if event["valid"]}
    before = len(run.events)
    deadline = time.monotonic() + _RUN_LIMIT_S
    process = run.start("--resume", str(directory))
    try:
        while run.next_event(deadline) is not None:
            pass
    except TimeoutError:
        outcome.faults.append(f"resume hung: no end after {_RUN_LIMIT_S:g} s")
        process.kill()
    if (status := process.wait(60)) != 0:
        outcome.faults.append(f"resume: exit status {status}: {_last_line(run.errors)}")
    again = {e["trial_id"] for e in run.events[before:] if e["event"] == "trial_done"}
    if twice := finished & again:
        outcome.faults.append(f"measured again: {', '.join(sorted(twice))}")


def _losses(run: Run, outcome: Outcome) -> list[str]:
    """Return what the result has not that it must have."""
    directory = _directory(run)
    if directory is None:
        return ["no result directory"] if run.of("trial_done") else []
    try:
        result = open_result(directory)
        rows = result.trials()
    except TunnelmarkError as error:
        return [f"result: {error}"]
    kept = set(rows.filter(rows["valid"])["trial_id"])
    finished = {event["trial_id"] for event in run.of("trial_done") if event["valid"]}
    faults = [f"lost: trial {name}" for name in sorted(finished - kept)]
    blocks = result.blocks.values()
    faults += [f"lost: {block.tunnel}: {block.error}" for block in blocks if block.error]
    wanted = 4 * outcome.strike.repeats
    if len(kept) != wanted:
        faults.append(f"{len(kept)} valid trials, must be {wanted}")
    if result.manifest.outcome != "complete":
        faults.append(f"outcome {result.manifest.outcome}")
    outcome.attempts = sum(attempt.reason is not None for b in blocks for attempt in b.attempts)
    return faults


def _directory(run: Run) -> Path | None:
    found = [path.parent for path in (run.folder / "results").glob("*/manifest.json")]
    return found[0] if found else None


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no words"


def _words(*argv: str) -> list[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()


def page(outcomes: list[Outcome], seed: int, missed: int) -> str:
    """Return the table."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        what = "killed" if one.strike.kill else f"paused {_PAUSE_S:g} s"
        groups.setdefault((one.strike.phase, what), []).append(one)
    lines = [
        "# Chaos",
        "",
        f"{len(outcomes)} runs of two tunnels each, seed {seed}, in each one process killed",
        f"or paused ({_PAUSE_S:g} s) at a random moment; {missed} more had ended before theirs.",
        f"Linux {platform.release()}, {os.cpu_count()} cores. Made by `make chaos`. A process was",
        f"struck up to {_MOST_DELAY_S:g} s after a block had entered the phase.",
        "",
        "| phase | what | runs | the run itself | other attempts needed | resumed | with a fault |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for phase in _PHASES:
        for what, ones in sorted((w, o) for (p, w), o in groups.items() if p == phase):
            own = sum(one.victim == _ITSELF for one in ones)
            lines.append(
                f"| {phase} | {what} | {len(ones)} | {own} | {sum(o.attempts > 0 for o in ones)} "
                f"| {sum(o.resumed for o in ones)} "
                f"| {sum(bool(o.faults) for o in ones)} |"
            )
    victims = Counter(one.victim for one in outcomes)
    lines += ["", "Victims: " + ", ".join(f"{name} {n}" for name, n in victims.most_common()) + "."]
    lines += ["", f"Runs with a fault: {sum(bool(one.faults) for one in outcomes)}."]
    lines += [f"- {_told(one)}: {'; '.join(one.faults)}" for one in outcomes if one.faults]
    return "\n".join([*lines, ""])


def _told(one: Outcome) -> str:
    what = "killed" if one.strike.kill else "paused"
    strike = one.strike
    return (
        f"{' and '.join(strike.tunnels)}, {one.victim} {what} {strike.delay_s:.1f} s into phase "
        f"{strike.phase} number {strike.occurrence}"
    )


def _folders(keep: Path | None) -> Iterator[Path]:
    """Yield a folder for each run; without ``keep`` all go at the end."""
    with contextlib.ExitStack() as closing:
        if keep is None:
            keep = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="tm-chaos-")))
        for number in itertools.count(1):
            folder = keep / f"run-{number}"
            folder.mkdir(parents=True)
            yield folder


def main() -> int:
    """Strike so many runs; exit status 1 if any of them has a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed if not given")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each on its own")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("chaos.md"))
    parser.add_argument("--keep", type=Path, help="keep everything of each run in this folder")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    outcomes: list[Outcome] = []
    missed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        numbers = iter(range(2 * given.runs))
        folders = _folders(given.keep)
        waiting: set[Future[Outcome]] = set()
        while len(outcomes) < given.runs:
            while len(waiting) < min(given.jobs, given.runs - len(outcomes)):
                if (number := next(numbers, None)) is None:
                    break
                waiting.add(pool.submit(_one, seed, number, next(folders)))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in (future.result() for future in done):
                if not one.victim and not one.faults:
                    missed += 1
                    continue
                outcomes.append(one)
                said = "; ".join(one.faults) or "ok"
                again = f", {one.attempts} failed attempts" if one.attempts else ""
                print(f"{_told(one)} ({one.seconds:.0f} s{again}): {said}", flush=True)
                given.out.write_text(page(outcomes, seed, missed), encoding="utf-8")
    return 1 if any(one.faults for one in outcomes) else 0


def _one(seed: int, number: int, folder: Path) -> Outcome:
    dice = random.Random(f"{seed}/{number}")  # noqa: S311 - what to break, no secret
    return carry_out(folder, plan(dice), seed, dice)


if __name__ == "__main__":
    sys.exit(main())
