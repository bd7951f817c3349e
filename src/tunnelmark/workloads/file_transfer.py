"""Files that are fetched or left by HTTP, HTTPS, scp or sftp: what an office does all day."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import ClassVar, Final

from tunnelmark.model.errors import LabError
from tunnelmark.model.faults import write
from tunnelmark.model.host import Need, Process
from tunnelmark.model.params import Params
from tunnelmark.model.trial import Measurement
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.workloads import curl, ssh_server, web_server
from tunnelmark.workloads.arrival import damaged, few, put_files, reported, sizes
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.congestion import TcpWorkload
from tunnelmark.workloads.corpus import File, corpus
from tunnelmark.workloads.exchanges import CarryClients
from tunnelmark.workloads.file_exchanges import Clients
from tunnelmark.workloads.file_transfer_params import FileTransferParams
from tunnelmark.workloads.programs import Bench, words
from tunnelmark.workloads.transfers import Fetched, figures, file_details

_LARGEST_LOG_BYTES: Final = 64 << 20

# Only words given as arguments are used: the list, verb, source, destination, then the program.
# With a verb the program reads a batch (sftp), without one it takes names (scp).
_EACH: Final = (
    'list=$1; verb=$2; from=$3; to=$4; log=$5; shift 5; exec 2>"$log"; '
    "while read -r name; do begin=$(date +%s%N); "
    'if [ -n "$verb" ]; then printf \'%s "%s%s" "%s%s"\\n\' '
    '"$verb" "$from" "$name" "$to" "$name" | "$@" >&2; '
    'else "$@" "$from$name" "$to$name" </dev/null >&2; fi || exit; '
    'echo "$begin $(date +%s%N) $name"; done <"$list"'
)
# The same with one connection: the batch is there already, nothing is reported of single files.
_ONE: Final = (
    'batch=$1; log=$2; shift 2; exec 2>"$log"; begin=$(date +%s%N); '
    '"$@" <"$batch" >&2 || exit; echo "$begin $(date +%s%N)"'
)


@dataclass(frozen=True)
class _Client:
    """A client that runs on one path."""

    path: TrafficPath
    process: Process
    folder: PurePosixPath
    """Where its files are to arrive, on the client or on the server."""
    log: PurePosixPath


SSH_TAKES_NO_TIME: Final = (
    "programs of SSH take no time to start here: for each file our lab took 0.13 s more by sftp "
    "and 0.16 s by scp"
)
"""Measured on two cores, from the first SYN to the end of the program (docs/simulation.md)."""


class FileTransfer(TcpWorkload):
    """nginx and curl, or sshd and scp or sftp; each path has the whole corpus, all at once."""

    kind: ClassVar[str] = "file_transfer"
    title: ClassVar[str] = "File transfer"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = FileTransferParams
    metrics: ClassVar[tuple[str, ...]] = (
        "transfer_time_ns",
        "transfer_goodput_bit_s",
        "transfer_file_p50_ns",
        "transfer_file_max_ns",
        "transfer_file_goodput_p50_bit_s",
        "transfer_ttfb_p50_ns",
        "transfer_ttfb_max_ns",
        "transfer_connect_p50_ns",
    )
    params: FileTransferParams

    def need(self) -> Need:
        """Need nginx and curl, or OpenSSH."""
        return Need(programs=ssh_server.PROGRAMS if self.params.ssh else web_server.PROGRAMS)

    @property
    def content(self) -> str:
        """What is encrypted gets no smaller."""
        return self.params.corpus if self.params.protocol == "http" else "random"

    @property
    def model_lacks(self) -> str | None:
        """Programs of SSH take time for their start and their keys that no network explains."""
        return SSH_TAKES_NO_TIME if self.params.ssh else None

    @property
    def expected_s(self) -> float:
        """Ten megabit a second, or the pace: only the time that was seen is more precise."""
        return 2 + self.params.size * 8 / min(self.params.pace or 10**10, 10_000_000)

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        try:
            files = corpus(self.params.corpus, self.params.size, self.params.corpus_seed)
            if context.carry_clients is not None:
                return _without_programs(self.params, context, context.carry_clients, files)
            with Bench(context, self.kind) as bench:
                return _Trial(self.params, context, bench, files).run()
        except LabError as error:
            failed = Check("processes", ok=False, message=str(error))
            return Outcome((), (failed,), 0, 0, 0.0)


class _Trial:
    """One trial: server, clients, and what came of them."""

    def __init__(
        self,
        params: FileTransferParams,
        context: TrialContext,
        bench: Bench,
        files: tuple[File, ...],
    ) -> None:
        self._params = params
        self._context = context
        self._bench = bench
        self._files = files
        self._problems: list[str] = []
        self._download = params.direction == "download"
        self._sender = context.server if self._download else context.client
        self._receiver = context.client if self._download else context.server
        self._source = bench.directory(self._sender) / "files"

    def run(self) -> Outcome:
        params, context, bench = self._params, self._context, self._bench
        put_files(self._sender, self._source, self._files)
        server, clients = self._start_ssh() if params.ssh else self._start_web()
        begun = time.monotonic()
        self._problems += bench.follow(
            [client.process for client in clients],
            [server],
            expected_s=params.size * 8 / min(params.pace or 10**10, 10_000_000),
            limit_s=params.limit_s(context.link, len(self._files), len(context.paths)),
        )
        lasted_s = time.monotonic() - begun
        logs = [self._log(client) for client in clients]
        for client, log in zip(clients, logs, strict=True):
            self._end(client, log, server)
        fetched = [self._reported(client) for client in clients]
        checks = [self._arrived(clients, fetched), self._negotiated(logs)]
        moved = sum(self._moved(client) for client in clients)
        samples = self._keep(clients, logs)
        alive = Check(
            "processes",
            ok=not self._problems,
            message="; ".join(dict.fromkeys(self._problems))
            or "the server stayed up and all clients finished",
        )
        found = _outcome(params, context, self._files, fetched, moved, enough=bench.enough)
        if bench.enough:
            # What was under way is among what moved, so its time is too.
            found = replace(found, measuring_s=lasted_s)
        return replace(found, checks=(alive, *checks), samples=samples)

    def _start_web(self) -> tuple[Process, list[_Client]]:
        params, context, bench = self._params, self._context, self._bench
        tls = params.secure
        root = bench.directory(context.server) / "files"
        # Each sender keeps to the pace: curl that only receives takes 10 MB before it looks.
        pace = params.pace_bytes_s
        server = web_server.start_web_server(
            context, bench, root, tls=tls, pace_bytes_s=pace if self._download else None
        )
        numbers = web_server.ports(context.paths, context.first_port)
        clients = []
        for path, port in zip(context.paths, numbers, strict=True):
            folder = self._folder(path, root)
            log = bench.directory(context.client) / f"curl-{path.name}.log"
            lines = []
            for file in self._files:
                # Uploads of several paths go to places of their own.
                name = f"{folder.name}/{file.name}" if folder.parent == root else file.name
                address = curl.url(params.protocol, path.server_address, port, name)
                place = (folder if self._download else self._source) / file.name
                word = "output" if self._download else "upload-file"
                lines += [f'url = "{address}"', f'{word} = "{place}"']
            if params.connections == "each":
                lines.append('header = "Connection: close"')
            # Else an upload waits for an answer to its headers first.
            lines.append('header = "Expect:"')
            listed = bench.directory(context.client) / f"curl-{path.name}.conf"
            context.client.put(listed, "\n".join([*lines, ""]).encode())
            argv = curl.arguments(
                source=path.client_address,
                trace=log,
                rate_bytes_s=None if self._download else pace,
                tls=tls.arguments(server.certificate) if tls and server.certificate else (),
            )
            process = bench.start(
                context.client,
                [*argv, "--http1.1", "--config", str(listed)],
                name=f"curl-{path.name}",
                lines=True,
            )
            clients.append(_Client(path, process, folder, log))
        return server.process, clients

    def _start_ssh(self) -> tuple[Process, list[_Client]]:
        params, context, bench = self._params, self._context, self._bench
        server = ssh_server.start_ssh_server(context, bench, params.ssh_cipher)
        home = bench.directory(context.client)
        clients = []
        for path, config in zip(context.paths, server.configurations, strict=True):
            folder = self._folder(path, bench.directory(context.server) / "arrived")
            log = home / f"ssh-{path.name}.log"
            # It ends with the shell that waits for it, however that ends.
            program = ["setpriv", "--pdeathsig", "KILL"]
            program += ["scp", "-O"] if params.protocol == "scp" else ["sftp", "-b", "-"]
            program += ["-F", str(config)]
            if params.pace_kbit_s is not None:
                program += ["-l", str(params.pace_kbit_s)]
            verb = "get" if self._download else "put"
            listed = home / f"list-{path.name}"
            if params.connections == "one":
                batch = [
                    f'{verb} "{self._source / file.name}" "{folder / file.name}"'
                    for file in self._files
                ]
                context.client.put(listed, "\n".join([*batch, ""]).encode())
                argv = ["sh", "-c", _ONE, "one", str(listed), str(log), *program, ssh_server.SERVER]
            else:
                names = "".join(f"{file.name}\n" for file in self._files)
                context.client.put(listed, names.encode())
                source, to = f"{self._source}/", f"{folder}/"
                if params.protocol == "scp":
                    verb = ""
                    prefix = f"{ssh_server.SERVER}:"
                    source, to = (prefix + source, to) if self._download else (source, prefix + to)
                else:
                    program.append(ssh_server.SERVER)
                argv = ["sh", "-c", _EACH, "each", str(listed), verb, source, to, str(log)]
                argv += program
            process = bench.start(context.client, argv, name=f"ssh-{path.name}", lines=True)
            clients.append(_Client(path, process, folder, log))
        return server.process, clients

    def _folder(self, path: TrafficPath, server_root: PurePosixPath) -> PurePosixPath:
        """Make the folder where the files of a path are to arrive."""
        root = self._bench.directory(self._receiver) / "arrived"
        folder = (root if self._download else server_root) / f"path-{path.name}"
        self._receiver.run(["mkdir", "-p", "-m", "700", "--", str(folder)])
        return folder

    def _log(self, client: _Client) -> str:
        try:
            data = self._context.client.get(client.log, limit_bytes=_LARGEST_LOG_BYTES)
        except LabError as error:
            if client.process.poll() == 0:
                self._problems.append(str(error))
            return ""
        return data.decode("utf-8", "replace")

    def _end(self, client: _Client, log: str, server: Process) -> None:
        status = client.process.poll()
        if status and not self._bench.enough:
            said = ssh_server.complaint(log) if self._params.ssh else curl.complaint(log)
            # Only nginx knows why it answers with an error: a full disk, for one.
            why = server.log_tail(1).strip() if status == curl.BAD_STATUS else ""
            self._problems.append(
                f"{self._params.protocol} on the client ended with status {status}: "
                f"{said or words(client.process)}" + (f"; nginx: {why[:300]}" if why else "")
            )

    def _reported(self, client: _Client) -> Fetched:
        """Return what the client reported of its transfers; damage is a problem."""
        lines = reported(client.process)
        lengths = {file.name: len(file.data) for file in self._files}
        try:
            if not self._params.ssh:
                transfers = [curl.parse_transfer(line) for line in lines]
                return Fetched.by_curl(
                    client.path.name, transfers, lengths, download=self._download
                )
            if self._params.connections == "one":
                return Fetched.by_clock(client.path.name, lines, lengths)
            return Fetched.by_clocks(client.path.name, lines, lengths)
        except ValueError as error:
            self._problems.append(str(error))
            return Fetched(client.path.name, (), None)

    def _arrived(self, clients: Sequence[_Client], fetched: Sequence[Fetched]) -> Check:
        """Compare what arrived with what was sent; of an ended load, what was reported done."""
        problems: list[str] = []
        compared = 0
        for client, one in zip(clients, fetched, strict=True):
            done = {file.name for file in one.files}
            files = [f for f in self._files if f.name in done or not self._bench.enough]
            found = damaged(self._receiver, client.folder, files)
            several = f"path {client.path.name}: " if len(clients) > 1 else ""
            problems += [several + problem for problem in found]
            compared += len(files)
        return Check(
            "content",
            ok=not problems,
            message=few(problems) or f"{compared} files arrived as they were sent (SHA-256)",
            value=float(len(problems)),
            limit=0.0,
            unit="file",
        )

    def _negotiated(self, logs: Sequence[str]) -> Check:
        params = self._params
        if params.protocol == "http":
            return Check("negotiated", ok=True, message="HTTP/1.1 without encryption")
        if params.ssh:
            ciphers = set().union(*(ssh_server.negotiated(log) for log in logs))
            wanted = ssh_server.CIPHERS[params.ssh_cipher]
            agreed, right = sorted(ciphers), ciphers <= {wanted}
        else:
            suites = set().union(*(curl.negotiated(log) for log in logs))
            wanted = f"TLSv{params.tls} / {params.tls_cipher or 'any of them'}"
            agreed = sorted(f"{version} / {cipher}" for version, cipher in suites)
            right = all(
                version == f"TLSv{params.tls}" and params.tls_cipher in {None, cipher}
                for version, cipher in suites
            )
        # Who did not get so far says so in another check.
        return Check(
            "negotiated",
            ok=right,
            message=f"{', '.join(agreed) or 'nothing'} was negotiated, {wanted} was requested",
        )

    def _moved(self, client: _Client) -> int:
        there = sizes(self._receiver, client.folder)
        return sum(there.get(file.name, 0) for file in self._files)

    def _keep(self, clients: Sequence[_Client], logs: Sequence[str]) -> tuple[str, ...]:
        context = self._context
        if context.samples_dir is None:
            return ()
        kept = []
        for client, log in zip(clients, logs, strict=True):
            if log:
                name = f"{context.sample_stem}.{client.log.name}"
                write(context.samples_dir / name, log.encode())
                kept.append(name)
        return tuple(kept)


def _without_programs(
    params: FileTransferParams,
    context: TrialContext,
    carry: CarryClients,
    files: tuple[File, ...],
) -> Outcome:
    """Run one trial in virtual time: what the programs send, and take no time for."""
    limit_s = params.limit_s(context.link, len(files), len(context.paths))
    clients = Clients(params, context.paths, files, context.first_port, round(limit_s * 1e9))
    ends = carry(clients.all()).clients
    fetched = clients.fetched(ends)
    lost = [path.name for path, end in zip(context.paths, ends, strict=True) if end.gave_up]
    alive = Check(
        "processes",
        ok=not lost,
        message=f"{params.protocol if params.ssh else 'curl'} gave up on path {', '.join(lost)}"
        if lost
        else "all clients finished",
    )
    moved = sum(file.payload_bytes for one in fetched for file in one.files)
    stopped = any(end.stopped for end in ends)
    found = _outcome(params, context, files, fetched, moved, enough=stopped)
    return replace(found, checks=(alive,))


def _outcome(
    params: FileTransferParams,
    context: TrialContext,
    files: Sequence[File],
    fetched: Sequence[Fetched],
    moved: int,
    *,
    enough: bool,
) -> Outcome:
    """Return what a trial came to, without checks."""
    spans = [one.span_s for one in fetched if one.span_s is not None]
    mss = min(path.mtu_bytes for path in context.paths) - 52
    return Outcome(
        (
            Measurement("total", figures(fetched, files, enough=enough)),
            *(Measurement(one.path, figures([one], files, enough=enough)) for one in fetched),
        ),
        (),
        payload_bytes=moved,
        payload_packets=moved // max(1, mss),
        measuring_s=max(spans, default=0.0),
        details={
            "corpus": {"kind": params.corpus, "files": len(files)},
            "transfers": [file_details(one) for one in fetched],
        },
    )
