"""Workloads done by programs where root is needed: file systems that are full."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopback import own_address
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Validity
from tunnelmark.workloads.base import TrialContext
from tunnelmark.workloads.file_transfer import FileTransfer
from tunnelmark.workloads.file_transfer_params import FileTransferParams

pytestmark = pytest.mark.lab


@pytest.fixture
def full(ledger: Ledger, engine: str, tmp_path: Path) -> Iterator[TrialContext]:
    """Two hosts whose work directories are file systems of 600 kB each."""
    logs = tmp_path / "logs"
    hosts = [LocalHost(ledger, name, logs=logs) for name in ("client", "server")]
    mounts = [Path(host.work_dir) for host in hosts]
    for mount in mounts:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=600k,mode=700", "tmtest", str(mount)], check=True
        )
    try:
        yield TrialContext(
            client=hosts[0],
            server=hosts[1],
            paths=(TrafficPath("0", "127.0.0.1", own_address(2), "lo", "lo", 65536),),
            engine=engine,
            seed=1,
            samples_dir=None,
            sample_stem="trial",
            progress=lambda _progress: None,
            cancelled=lambda: False,
        )
    finally:
        for host in hosts:
            host.stop_all()
        for mount in mounts:
            subprocess.run(["umount", str(mount)], check=True)


def reasons(context: TrialContext, **params: object) -> str:
    workload = FileTransfer(FileTransferParams.model_validate(params))
    assert workload.unavailable(context.client) is None
    outcome = workload.run(context)
    verdict = Validity(outcome.checks)
    assert not verdict.valid
    found = [p.name for host in (context.client, context.server) for p in _left(host)]
    assert found == []
    return " ".join(verdict.reasons)


def _left(host: object) -> list[Path]:
    assert isinstance(host, LocalHost)
    return [p for p in Path(host.work_dir).iterdir() if p.name != "private"]


@pytest.mark.parametrize("protocol", ["http", "https", "scp", "sftp"])
@pytest.mark.parametrize("direction", ["download", "upload"])
def test_a_corpus_that_the_sender_has_no_room_for(
    full: TrialContext, protocol: str, direction: str
) -> None:
    said = reasons(full, protocol=protocol, direction=direction, corpus="text", size="2 MB")
    assert "No space left on device" in said


@pytest.mark.parametrize("protocol", ["http", "https", "scp", "sftp"])
def test_an_upload_that_the_server_has_no_room_for(full: TrialContext, protocol: str) -> None:
    ballast = Path(full.server.work_dir) / "private" / "ballast"
    ballast.parent.mkdir()
    ballast.write_bytes(bytes(300_000))
    said = reasons(full, protocol=protocol, direction="upload", corpus="text", size="450 kB")
    assert f"{protocol} on the client ended with status" in said
    # sftp has no word of its own for it (draft-ietf-secsh-filexfer-02 section 7: "failure").
    assert "No space left on device" in said or (protocol == "sftp" and "ailure" in said)
