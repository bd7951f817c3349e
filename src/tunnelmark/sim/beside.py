"""Loads beside a workload in virtual time: in the same world, over the same link and tunnel ends.

A load's own code says what it sends, run by run. All of that, and what is measured, is one document
of the simulator, which begins the loads first, begins the next run where one is over, and ends them
with what is measured. Then the same code is handed what came of each run that was begun.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tunnelmark.model.errors import LabError
from tunnelmark.sim.carriage import Carriage
from tunnelmark.sim.seam import Seam, Simulate
from tunnelmark.sim.simulate import Simulated
from tunnelmark.workloads.background import Load, Ran, context_of
from tunnelmark.workloads.base import TrialContext

LEAD_NS: Final = 10**9
"""So long the loads run before what is measured begins."""
_FIRST_RUNS: Final = 4
"""Runs of each load that are planned at first; where they are too few it is done again."""
_MOST_RUNS: Final = 1024
_TRAFFIC: Final = ("forward", "reverse", "tcp", "clients", "requesters")
Document = Mapping[str, Any]


class _AskedError(Exception):
    """Not an error: ends a load's code where it is known what it sends."""

    def __init__(self, document: Document) -> None:
        super().__init__("a load has said what it sends")
        self.document = document


class Beside:
    """The loads of a trial, beside whatever of it is simulated, as often as that is."""

    def __init__(
        self,
        context: TrialContext,
        loads: Sequence[Load],
        carried: Carriage,
        outside: Carriage,
        work_dir: Path,
    ) -> None:
        """Plan nothing yet; ``context`` is the trial's, over what is ``carried``."""
        self.runners = [Ran(context, load, number) for number, load in enumerate(loads)]
        self._carried, self._outside, self._work_dir = carried, outside, work_dir
        self._lead_ns = LEAD_NS

    def settle(self, lasts_ns: int) -> None:
        """Have the loads run for so much longer before what is measured next."""
        self._lead_ns += lasts_ns

    def run(self, document: Mapping[str, object], simulate: Simulate) -> Simulated:
        """Simulate a document with the loads beside it.

        A load that sends nothing has the reason as its error, and the others run without it.
        """
        lead_ns, self._lead_ns = self._lead_ns, LEAD_NS
        count, planned = 0, {ran.number: list[Document]() for ran in self.runners}
        while True:
            count = count * 2 or _FIRST_RUNS
            if count > _MOST_RUNS:
                raise LabError(f"a load would run more than {_MOST_RUNS} times")
            for ran in self.runners:
                self._plan(ran, planned[ran.number], count)
            sending = [ran for ran in self.runners if planned[ran.number]]
            loads = [planned[ran.number] for ran in sending]
            # Paths outside are behind those of the tunnel, unless they are the same.
            outside = [self._is_outside(ran.load) for ran in sending]
            found = simulate(world(document, loads, outside, lead_ns=lead_ns))
            if found.lacking is None:
                break
        for ran, runs, documents in zip(sending, found.loads, loads, strict=True):
            first = len(ran.outcomes)
            for number, run in enumerate(runs):
                ran.add(ran.load.workload.run(self._context(ran, first + number, _given(run))))
            for unused in documents[len(runs) :]:
                _forget(unused)
        return found

    def _plan(self, ran: Ran, documents: list[Document], count: int) -> None:
        """Have the load say what it sends in its next runs, so many in all."""
        for number in range(len(documents), count):
            if ran.error is not None:
                return
            try:
                context = self._context(ran, len(ran.outcomes) + number, _ask)
                if ran.add(ran.load.workload.run(context)):
                    ran.error = "it sent nothing"
                ran.outcomes.pop()
            except _AskedError as asked:
                documents.append(asked.document)

    def _context(self, ran: Ran, run: int, simulate: Simulate) -> TrialContext:
        """Return what a load is handed for a run of which ``simulate`` knows what comes."""
        carried = self._outside if ran.load.outside else self._carried
        seam = Seam(carried, self._work_dir, lambda: 0, simulate)
        return replace(
            context_of(ran.context, ran.load, number=ran.number, run=run),
            client=seam.host("client"),
            server=seam.host("server"),
            progress=lambda _progress: None,
            at_once=seam.line.expect,
            carry_bulk=seam.carry_bulk,
            carry_clients=seam.carry_clients,
        )

    def _is_outside(self, load: Load) -> bool:
        return load.outside and self._outside is not self._carried


def world(
    document: Document,
    loads: Sequence[Sequence[Document]],
    outside: Sequence[bool],
    *,
    lead_ns: int,
) -> dict[str, object]:
    """Return a document with loads beside what it has; those ``outside`` have paths of their own.

    Pure. Each path has the sizes of all that go over it.
    """
    paths = [dict(path) for path in document["paths"]]
    inside = len(paths)
    moved = []
    for runs, apart in zip(loads, outside, strict=True):
        first = inside if apart else 0
        for run in runs:
            for place, path in enumerate(run["paths"], first):
                if place == len(paths):
                    paths.append({**path, "sizes": []})
                sizes = [*paths[place]["sizes"], *path["sizes"]]
                by_payload = {one["payload_bytes"]: one for one in sizes}
                paths[place]["sizes"] = [by_payload[payload] for payload in sorted(by_payload)]
        moved.append([_moved(run, first) for run in runs])
    return {**document, "paths": paths, "loads": moved, "lead_ns": lead_ns}


def _moved(run: Document, first: int) -> dict[str, object]:
    """Return what a run sends, with its paths from ``first`` on."""
    found = {name: run[name] for name in _TRAFFIC if run.get(name)}
    for way in ("forward", "reverse"):
        if way in found:
            found[way] = {**found[way], "paths": [first + one for one in found[way]["paths"]]}
    for name in ("tcp", "clients", "requesters"):
        if name in found:
            found[name] = [{**one, "path": first + one["path"]} for one in found[name]]
    return {"forward": None, "reverse": None, **found}


def _ask(document: Document) -> Simulated:
    raise _AskedError(document)


def _given(found: Simulated) -> Callable[[Document], Simulated]:
    return lambda _document: found


def _forget(run: Document) -> None:
    """Remove the records of a run that was not begun."""
    for way in ("forward", "reverse"):
        for part in (run.get(way) or {}).values():
            if isinstance(part, Mapping) and part.get("records"):
                Path(part["records"]).unlink(missing_ok=True)
