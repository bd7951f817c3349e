"""Every workload that is done by programs: over the loopback, and with everything that can fail."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from loopback import own_address
from tunnelmark.engine.binary import find_engine
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.hosts.process import LocalProcess
from tunnelmark.model.host import Completed
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Validity
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.programs import Bench
from tunnelmark.workloads.registry import workload_kinds
from tunnelmark.workloads.ssh_server import SERVER, start_ssh_server

KINDS = workload_kinds()


@dataclass(frozen=True)
class Case:
    """A workload with parameters that make a short trial."""

    kind: str
    params: Mapping[str, object]
    long: Mapping[str, object] = field(default_factory=dict)
    """What makes the trial so long that something can happen in its midst."""
    udp: bool = False
    always: frozenset[str] = frozenset()
    """Metrics that must have a figure with these parameters."""

    def workload(self, **changes: object) -> Workload:
        driver = KINDS[self.kind]
        values = {**self.params, **changes}
        return driver(driver.params_type.model_validate(values))

    def __str__(self) -> str:
        return " ".join([self.kind, *(str(value) for value in self.params.values())])


TRANSFER_ALWAYS = frozenset({"transfer_time_ns", "transfer_goodput_bit_s"})
FILE_ALWAYS = TRANSFER_ALWAYS | {"transfer_file_p50_ns", "transfer_file_goodput_p50_bit_s"}
TTFB_ALWAYS = FILE_ALWAYS | {"transfer_ttfb_p50_ns", "transfer_connect_p50_ns"}
SLOW_FILES = {"size": "20 MB", "corpus": "zero", "pace": "2 Mbit/s"}
TCP_ALWAYS = frozenset(
    {"tcp_goodput_bit_s", "tcp_retransmits_per_s", "tcp_rtt_p50_ns", "tcp_cwnd_p50_bytes"}
)
CASES = [
    Case("tcp_bulk", {"duration": "1 s", **more}, {"duration": "60 s"}, always=TCP_ALWAYS)
    for more in (
        {"content": "random"},
        {"content": "zero", "direction": "both", "parallel": 2},
        {"content": "repeating", "direction": "reverse", "window": "64 KiB", "congestion": "reno"},
    )
]
CASES += [
    Case("file_transfer", {"corpus": "text", "size": "500 kB", **more}, SLOW_FILES, always=always)
    for more, always in (
        ({"protocol": "http"}, TTFB_ALWAYS),
        ({"protocol": "http", "connections": "one", "direction": "upload"}, FILE_ALWAYS),
        ({"protocol": "https"}, TTFB_ALWAYS),
        ({"protocol": "https", "tls": "1.2", "connections": "one"}, TTFB_ALWAYS),
        ({"protocol": "https", "tls_cipher": "TLS_AES_128_GCM_SHA256"}, TTFB_ALWAYS),
        ({"protocol": "https", "direction": "upload"}, FILE_ALWAYS),
        ({"protocol": "scp"}, FILE_ALWAYS),
        ({"protocol": "scp", "direction": "upload", "ssh_cipher": "AES-256-CTR"}, FILE_ALWAYS),
        ({"protocol": "sftp", "ssh_cipher": "AES-128-GCM"}, FILE_ALWAYS),
        ({"protocol": "sftp", "direction": "upload"}, FILE_ALWAYS),
        ({"protocol": "sftp", "connections": "one"}, TRANSFER_ALWAYS),
    )
]
# Two pages have no 95th percentile.
WEB_ALWAYS = frozenset(name for name in KINDS["web"].metrics if "_p95_" not in name)
CASES += [
    Case(
        "web",
        {"pages": 2, "small": 5, "large": 1, **more},
        {"pages": 1000, "pause": "400 ms"},
        always=WEB_ALWAYS,
    )
    for more in ({"protocol": "http"}, {}, {"http": "2"}, {"connections": 1, "large": 0})
]
DNS_ALWAYS = frozenset(KINDS["dns"].metrics)
# A busy computer may answer too few of 1200 queries in 3 s for a 99th percentile, which needs 1000.
DNS_LIMITED_ALWAYS = DNS_ALWAYS - {"dns_latency_p99_ns"}
DNS_LIMITED = {"transport": "tcp", "outstanding": 2, "rate": 400, "duration": "3 s"}
CASES += [
    Case("dns", {"duration": "1 s", **more}, {"duration": "60 s"}, udp=udp, always=always)
    for more, udp, always in (
        ({}, True, DNS_ALWAYS),
        (DNS_LIMITED, False, DNS_LIMITED_ALWAYS),
    )
]
RR_ALWAYS = frozenset(KINDS["request_response"].metrics)
CASES += [
    Case(
        "request_response",
        {"duration": "500 ms", **more},
        {"duration": "60 s"},
        udp=more["transport"] == "udp",
        always=RR_ALWAYS,
    )
    for more in (
        {"transport": "tcp"},
        {"transport": "udp", "outstanding": 3},
        {"transport": "connect", "request_bytes": "200 B", "response_bytes": "100 kB"},
    )
]
MEMORY = Path("/dev/shm")  # noqa: S108 - only looked at
each_case = pytest.mark.parametrize("case", CASES, ids=str)
# One case of each set of programs is enough where only their ends are looked at.
FIRST = list({(c.kind, c.params.get("protocol")): c for c in reversed(CASES)}.values())
each_kind = pytest.mark.parametrize("case", FIRST, ids=str)
each_transfer = pytest.mark.parametrize(
    "case", [case for case in CASES if case.kind == "file_transfer"], ids=str
)


def into_a_device(case: Case) -> bool:
    """Say whether what arrives is written into what is there; nginx replaces it (see tests/lab)."""
    by_nginx = case.params.get("protocol") in {"http", "https"}
    return case.kind == "file_transfer" and not (by_nginx and "direction" in case.params)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[TrialContext]:
    root, samples = tmp_path / "runtime", tmp_path / "samples"
    root.mkdir(mode=0o700)
    samples.mkdir()
    engine = find_engine()
    with Ledger(root) as ledger:
        hosts = [Watched(ledger, name) for name in ("client", "server")]
        try:
            yield TrialContext(
                client=hosts[0],
                server=hosts[1],
                paths=(path(0),),
                engine=engine,
                seed=1,
                samples_dir=samples,
                sample_stem="trial-1",
                progress=lambda _progress: None,
                cancelled=lambda: False,
            )
        finally:
            for host in hosts:
                host.stop_all()


class Watched(LocalHost):
    """A host that can be made to start something else, or to see a server that is not there."""

    instead: Sequence[str] | None = None
    before_digests: Callable[[Path], None] | None = None
    """What happens to the first file that arrived before its digest is asked for."""

    def spawn(self, argv: Sequence[str], **more: Any) -> LocalProcess:
        return super().spawn(self.instead or argv, **more)

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        if self.instead and argv[0] == "ss":
            return Completed(tuple(argv), 0, b"LISTEN", b"")
        if self.before_digests and argv[0] == "sha256sum":
            self.before_digests(Path(argv[2]))
        return super().run(argv, **more)


def path(number: int) -> TrafficPath:
    return TrafficPath(str(number), "127.0.0.1", own_address(number + 2), "lo", "lo", 65536)


def ready(case: Case, context: TrialContext, **changes: object) -> Workload:
    workload = case.workload(**changes)
    assert workload.unavailable(context.client) is None
    return workload


def faults(outcome: Outcome) -> list[str]:
    return list(Validity(outcome.checks).reasons)


def left(context: TrialContext) -> list[str]:
    """What a trial left on its hosts: files, directories in memory, programs."""
    found = []
    for host in (context.client, context.server):
        assert isinstance(host, LocalHost)
        found += [f"{p.name} {p.argv}" for p in host.spawned if p.poll() is None]
        found += [str(p) for p in MEMORY.glob(f"{host.unique}*")]
        work = Path(host.work_dir)
        # The host keeps logs, and private copies of directories, until the run ends.
        found += [str(p) for p in work.iterdir() if p.name not in {"logs", "private"}]
    return found


@each_case
def test_over_the_loopback_a_trial_is_valid(context: TrialContext, case: Case) -> None:
    outcome = ready(case, context).run(context)
    assert faults(outcome) == []
    (total,) = [m for m in outcome.measurements if m.path == "total"]
    assert set(total.metrics) == set(KINDS[case.kind].metrics) <= set(METRICS)
    missing = {name for name in case.always if total.metrics[name] is None}
    assert not missing
    negative = {n: value for n, value in total.metrics.items() if value is not None and value < 0}
    # An idle round trip over the loopback wakes programs that sleep; one in a transfer does not.
    assert negative.keys() <= {"tcp_buffer_delay_ratio"}, negative
    assert outcome.payload_bytes > 0
    assert outcome.payload_packets > 0
    assert outcome.measuring_s > 0
    assert context.samples_dir is not None
    assert sorted(outcome.samples) == sorted(p.name for p in context.samples_dir.iterdir())
    assert left(context) == []


@each_kind
def test_several_paths_carry_at_once(context: TrialContext, case: Case) -> None:
    context = replace(context, paths=tuple(path(number) for number in range(3)))
    outcome = ready(case, context).run(context)
    assert faults(outcome) == []
    assert [m.path for m in outcome.measurements] == ["total", "0", "1", "2"]
    assert left(context) == []


@each_kind
def test_without_samples_nothing_is_kept(context: TrialContext, case: Case) -> None:
    outcome = ready(case, context).run(replace(context, samples_dir=None))
    assert faults(outcome) == []
    assert outcome.samples == ()


@pytest.mark.parametrize("host", ["client", "server"])
@each_kind
def test_a_program_that_is_killed_is_a_failed_check(
    context: TrialContext, case: Case, host: str
) -> None:
    pids: dict[str, int] = {}
    done = threading.Event()

    def kill(_progress: object) -> None:
        if not done.is_set():
            done.set()
            os.kill(pids[host], signal.SIGKILL)

    context = replace(
        context, progress=kill, measuring_processes=lambda name, pid: pids.update({name: pid})
    )
    outcome = ready(case, context, **case.long).run(context)
    assert done.is_set()
    assert any(host in reason for reason in faults(outcome)), faults(outcome)
    assert left(context) == []


@each_kind
def test_a_trial_that_is_cancelled_ends_early(context: TrialContext, case: Case) -> None:
    begun = threading.Event()
    context = replace(context, progress=lambda _p: begun.set(), cancelled=begun.is_set)
    outcome = ready(case, context, **case.long).run(context)
    assert any("ended early" in reason for reason in faults(outcome)), faults(outcome)
    assert left(context) == []


@each_kind
def test_a_port_that_is_taken_is_a_failed_check(context: TrialContext, case: Case) -> None:
    workload = ready(case, context)
    kind = socket.SOCK_DGRAM if case.udp else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as blocker:
        if not case.udp:
            # What the tests before it closed may still be remembered by the kernel. Datagrams
            # are not, and two that both allow it may even share a port.
            blocker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        blocker.bind((context.paths[0].server_address, context.first_port))
        if not case.udp:
            blocker.listen()
        outcome = workload.run(context)
    assert faults(outcome)
    assert "server" in " ".join(faults(outcome))
    assert left(context) == []


@each_kind
def test_a_refused_connection_is_a_failed_check(context: TrialContext, case: Case) -> None:
    workload = ready(case, context)
    assert isinstance(context.server, Watched)
    # It says that it is ready, as the engine does, and is not.
    context.server.instead = ["sh", "-c", 'echo "$1"; exec sleep 600', "not", '{"event":"ready"}']
    outcome = workload.run(context)
    reasons = " ".join(faults(outcome)).lower()
    assert "refused" in reasons, reasons
    assert left(context) == []


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "request_response"], ids=str)
def test_a_message_of_another_program_is_a_failed_check(context: TrialContext, case: Case) -> None:
    begun = threading.Event()

    def intrude(_progress: object) -> None:
        if begun.is_set():
            return
        begun.set()
        kind = socket.SOCK_DGRAM if case.udp else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as stranger:
            stranger.connect((context.paths[0].server_address, context.first_port))
            stranger.sendall(100 * b"no request of this trial")

    context = replace(context, progress=intrude)
    reasons = faults(ready(case, context).run(context))
    assert begun.is_set()
    assert any("were not requests of this trial" in reason for reason in reasons), reasons
    assert left(context) == []


class Looks:
    """Sees enough after so many looks."""

    def __init__(self, limit: int) -> None:
        self.count, self.limit = 0, limit

    def __call__(self) -> bool:
        self.count += 1
        return self.count > self.limit


@each_kind
def test_a_load_of_which_enough_was_seen_ends_in_order(context: TrialContext, case: Case) -> None:
    # A busy computer may have moved nothing yet when enough was seen: then it ends later.
    for limit in (8, 80, 800):
        looks = Looks(limit)
        early = replace(context, enough=looks)
        outcome = ready(case, early, **case.long).run(early)
        assert looks.count > limit
        assert faults(outcome) == []
        assert left(context) == []
        if outcome.payload_bytes:
            return
    raise AssertionError("nothing was moved")


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
def test_bulk_data_can_come_from_a_file(
    context: TrialContext, tmp_path: Path, direction: str
) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"sent again and again " * 1000)
    case = Case("tcp_bulk", {"duration": "1 s", "content": "file", "file": str(content)})
    outcome = ready(case, context, direction=direction).run(context)
    assert faults(outcome) == []
    # More than the file has: it was sent several times.
    assert outcome.payload_bytes > 10 * content.stat().st_size
    assert left(context) == []


def test_a_file_that_is_not_there_is_a_failed_check(context: TrialContext, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    case = Case("tcp_bulk", {"content": "file", "file": str(missing)})
    assert f"{missing}: No such file" in " ".join(faults(ready(case, context).run(context)))


def test_a_congestion_control_that_the_kernel_lacks_is_reported_before_the_run(
    context: TrialContext,
) -> None:
    reason = Case("tcp_bulk", {"congestion": "westwood9"}).workload().unavailable(context.client)
    assert reason is not None
    assert "congestion is 'westwood9', the kernel has" in reason


def test_nothing_of_the_users_own_shell_runs_in_a_transfer(context: TrialContext) -> None:
    with Bench(context, "login") as bench:
        served = start_ssh_server(context, bench, "AES-128-GCM")
        argv = ["ssh", "-F", str(served.configurations[0]), SERVER]
        asked = context.client.run([*argv, "env; ls -A ~"]).text().splitlines()
    directory = next(line for line in asked if line.startswith("HOME=")).removeprefix("HOME=")
    assert Path(directory).is_relative_to(MEMORY)
    # No ~/.bashrc, ~/.zshenv or ~/.config: what they do would count as the transfer's time.
    assert set(asked[-3:]) == {"authorized_keys", "host_key", "sshd.conf"}


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def receiver(case: Case, context: TrialContext) -> Watched:
    upload = case.params.get("direction") == "upload"
    host = context.server if upload else context.client
    assert isinstance(host, Watched)
    return host


@each_transfer
def test_a_file_that_is_damaged_is_a_failed_check(context: TrialContext, case: Case) -> None:
    workload = ready(case, context)
    receiver(case, context).before_digests = _flip
    reasons = faults(workload.run(context))
    assert reasons == ["text-0000.txt is damaged: its SHA-256 is not what was sent"]
    assert left(context) == []


@pytest.mark.parametrize("case", [c for c in CASES if into_a_device(c)], ids=str)
def test_a_disk_that_is_full_is_a_failed_check(context: TrialContext, case: Case) -> None:
    workload = ready(case, context)
    host = receiver(case, context)
    run = host.run

    def full(argv: Sequence[str], **more: Any) -> Completed:
        done = run(argv, **more)
        if argv[0] == "mkdir" and Path(argv[-1]).name == "path-0":
            for number in range(3):
                (Path(argv[-1]) / f"text-{number:04}.txt").symlink_to("/dev/full")
        return done

    host.run = full  # type: ignore[method-assign]
    reasons = " ".join(faults(workload.run(context)))
    assert "ended with status" in reasons
    assert any(word in reasons for word in ("No space left", "Failure", "writ")), reasons
    assert left(context) == []


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "web"], ids=str)
def test_an_object_that_is_damaged_is_a_failed_check(context: TrialContext, case: Case) -> None:
    workload = ready(case, context)
    receiver(case, context).before_digests = _flip
    reasons = faults(workload.run(context))
    assert reasons == ["document is damaged: its SHA-256 is not what was sent"]
    assert left(context) == []
