"""Two hosts that are both this machine, joined by the loopback: enough for any workload."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopback import own_address
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.model.errors import LabError
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads.base import TrialContext


@pytest.fixture(scope="session")
def engine() -> str:
    try:
        return find_engine()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[TrialContext]:
    root, samples = tmp_path / "runtime", tmp_path / "samples"
    root.mkdir(mode=0o700)
    samples.mkdir()
    with Ledger(root) as ledger:
        hosts = [LocalHost(ledger, name) for name in ("client", "server")]
        try:
            yield TrialContext(
                client=hosts[0],
                server=hosts[1],
                paths=(_path(0),),
                engine=find_engine(),
                seed=1,
                samples_dir=samples,
                sample_stem="trial-1",
                progress=lambda _progress: None,
                cancelled=lambda: False,
            )
        finally:
            for host in hosts:
                host.stop_all()


@pytest.fixture
def loopback_path() -> Callable[[int], TrafficPath]:
    return _path


def _path(number: int) -> TrafficPath:
    client, server = own_address(number + 102), own_address(number + 2)
    return TrafficPath(str(number), client, server, "lo", "lo", 65536)
