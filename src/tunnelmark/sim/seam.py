"""Where a workload meets the simulator: what it starts or asks for becomes one document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tunnelmark.engine import config
from tunnelmark.model.errors import LabError
from tunnelmark.model.tunnel import Side
from tunnelmark.sim.carriage import Carriage, payloads_of
from tunnelmark.sim.clients import client_config, client_ends
from tunnelmark.sim.host import Line, Parts, SimHost
from tunnelmark.sim.simulate import Simulated
from tunnelmark.sim.tcp import bulk_config, bulk_ends
from tunnelmark.workloads.bulk import BulkEnds, BulkFlow
from tunnelmark.workloads.exchanges import Client, ClientEnds, Requester

Simulate = Callable[[Mapping[str, object]], Simulated]
"""Returns what came of the document of ``tunnelmark-engine sim``."""


@dataclass(frozen=True)
class Seam:
    """What a workload is handed in the place of hosts and programs."""

    carried: Carriage
    work_dir: Path
    """For files of moments."""
    seed: Callable[[], int]
    """Returns the seed of the next document."""
    simulate: Simulate

    @cached_property
    def line(self) -> Line:
        """What joins the hosts."""
        return Line(self._sent)

    def host(self, name: Side) -> SimHost:
        """Return a host."""
        folder = self.work_dir / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return SimHost(name, self.line, folder)

    def carry_bulk(self, flows: Sequence[BulkFlow]) -> Sequence[BulkEnds]:
        """Run the simulator once for TCP connections."""
        document = bulk_config(flows, self.carried, seed=self.seed(), files_dir=str(self.work_dir))
        return bulk_ends(flows, self.carried, self.simulate(document))

    def carry_clients(self, clients: Sequence[Client] | Sequence[Requester]) -> ClientEnds:
        """Run the simulator once for programs that ask."""
        files_dir = str(self.work_dir)
        document = client_config(clients, self.carried, seed=self.seed(), files_dir=files_dir)
        return client_ends(self.simulate(document))

    def _sent(self, parts: Parts) -> Simulated:
        """Run the simulator once for what was started together."""
        document = sim_config(
            parts,
            self.carried,
            seed=self.seed(),
            files_dir=str(self.work_dir),
            enough=self.line.enough,
        )
        return self.simulate(document)


def sim_config(
    parts: Parts,
    carried: Carriage,
    *,
    seed: int,
    files_dir: str,
    enough: Mapping[str, int] | None = None,
) -> dict[str, object]:
    """Return the configuration of ``tunnelmark-engine sim`` for senders and their reflectors."""
    places = {
        address: number
        for number, path in enumerate(carried.paths)
        for address in (path.client_address, path.server_address)
    }
    payloads: list[set[int]] = [set() for _ in carried.paths]
    ways: dict[str, object] = {"forward": None, "reverse": None}
    for way, started in parts.items():
        if "send" not in started:
            continue
        if "reflect" not in started:
            raise LabError(f"{way}: a sender was started without a reflector")
        flows: Sequence[Mapping[str, Any]] = started["send"]["flows"]
        taken = [places[_address(flow["target"])] for flow in flows]
        for flow, place in zip(flows, taken, strict=True):
            payloads[place].update(payloads_of(flow))
        ways[way] = {**started, "paths": taken, "enough": enough}
    return {
        "protocol": config.PROTOCOL,
        "seed": seed,
        **carried.link_json(files_dir),
        "paths": [carried.path_json(sizes) for sizes in payloads],
        **ways,
    }


def _address(target: str) -> str:
    """Return the address of ``198.19.0.2:7700`` or ``[fd00::2]:7700``."""
    return target.rpartition(":")[0].strip("[]")
