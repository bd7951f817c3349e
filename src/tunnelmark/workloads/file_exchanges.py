"""File transfers in virtual time: what the programs of a lab send, and what they would report."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads import (
    curl,
    http_lengths,
    pace,
    sftp_lengths,
    ssh_lengths,
    ssh_server,
    web_server,
)
from tunnelmark.workloads.corpus import File
from tunnelmark.workloads.exchanges import Client, ClientEnd, Stage
from tunnelmark.workloads.file_transfer_params import FileTransferParams
from tunnelmark.workloads.transfers import Fetched, OneFile


@dataclass(frozen=True)
class Clients:
    """A client for each path, which transfers all files one after the other."""

    params: FileTransferParams
    paths: Sequence[TrafficPath]
    files: Sequence[File]
    first_port: int
    limit_ns: int

    def all(self) -> list[Client]:
        """Return them, in the order of the paths."""
        if self.params.ssh:
            one = self._by_scp() if self.params.protocol == "scp" else self._by_sftp()
            # Who waits because of a pace hears of the other end all the same (ssh_server).
            patience_s = ssh_server.PATIENCE_S + ssh_lengths.pause_s(self._ssh_pace_bit_s)
            stages = [one] * len(self.paths)
        else:
            patience_s, stages = curl.STALL_LIMIT_S, [self._by_curl(urls) for urls in self._urls]
        return [
            Client(
                path=path,
                stages=one,
                congestion=self.params.congestion,
                patience_ns=patience_s * 10**9,
                limit_ns=self.limit_ns,
            )
            for path, one in zip(self.paths, stages, strict=True)
        ]

    def fetched(self, ends: Sequence[ClientEnd]) -> list[Fetched]:
        """Return what they would have reported."""
        if self.params.ssh:
            return [self._clocked(*pair) for pair in zip(self.paths, ends, strict=True)]
        return [self._traced(*one) for one in zip(self.paths, self._urls, ends, strict=True)]

    @property
    def _downloads(self) -> bool:
        return self.params.direction == "download"

    @property
    def _ssh_pace_bit_s(self) -> int | None:
        kbit = self.params.pace_kbit_s
        return None if kbit is None else kbit * pace.SSH_KBIT

    @cached_property
    def _urls(self) -> list[list[str]]:
        """Addresses of the files for curl, of each path."""
        numbers = web_server.ports(self.paths, self.first_port)
        found = []
        for path, port in zip(self.paths, numbers, strict=True):
            # Uploads of several paths go to places of their own.
            folder = "" if self._downloads else f"path-{path.name}/"
            names = [folder + file.name for file in self.files]
            server = path.server_address
            found.append([curl.url(self.params.protocol, server, port, name) for name in names])
        return found

    def _by_curl(self, urls: Sequence[str]) -> tuple[Stage, ...]:
        tls, close = self.params.secure, self.params.connections == "each"
        message = http_lengths.fetch if self._downloads else http_lengths.leave
        exchanges = [
            message(
                url, len(file.data), tls=tls, close=close, pace_bytes_s=self.params.pace_bytes_s
            )
            for url, file in zip(urls, self.files, strict=True)
        ]
        opening = http_lengths.opening(tls, [path.server_address for path in self.paths])
        return (Stage(tuple(exchanges), opening=opening, fresh=close),)

    def _by_scp(self) -> tuple[Stage, ...]:
        """Return a connection for each file: what it begins with, the file, and its end."""
        message = ssh_lengths.fetch if self._downloads else ssh_lengths.leave
        cipher, stages = self.params.ssh_cipher, []
        opening = ssh_lengths.opening(cipher)
        for file in self.files:
            *before, moved, end = message(file.name, len(file.data), cipher, self._ssh_pace_bit_s)
            stages.append(Stage((moved, end), opening=(*opening, *before)))
        return tuple(stages)

    def _by_sftp(self) -> tuple[Stage, ...]:
        """Return a connection for each file, or one for all."""
        cipher = self.params.ssh_cipher
        opening = sftp_lengths.opening(cipher)
        files = [(file.name, len(file.data)) for file in self.files]
        runs = [[one] for one in files] if self.params.connections == "each" else [files]
        return tuple(
            Stage(
                sftp_lengths.session(
                    run, cipher, download=self._downloads, pace_bit_s=self._ssh_pace_bit_s
                ),
                opening=opening,
            )
            for run in runs
        )

    def _traced(self, path: TrafficPath, urls: Sequence[str], end: ClientEnd) -> Fetched:
        way = "downloaded" if self._downloads else "uploaded"
        transfers = [
            curl.transferred(one, urls[one.place], **{way: len(self.files[one.place].data)})
            for one in end.exchanges
        ]
        lengths = {file.name: len(file.data) for file in self.files}
        return Fetched.by_curl(path.name, transfers, lengths, download=self._downloads)

    def _clocked(self, path: TrafficPath, end: ClientEnd) -> Fetched:
        """Take the times before and after each program, which both take none to start."""
        # Each program ends with the last exchange of its stage.
        programs = self._by_scp() if self.params.protocol == "scp" else self._by_sftp()
        at = {(one.stage, one.place): one for one in end.exchanges}
        times = [
            (at[number, 0].began_ns, at[number, last].done_ns)
            for number, stage in enumerate(programs)
            if (number, last := len(stage.exchanges) - 1) in at
        ]
        if not times:
            return Fetched(path.name, (), None)
        each: list[float | None] = [(until - since) / 1e9 for since, until in times]
        if self.params.connections == "one":
            # The one program says nothing of single files.
            each = [None] * len(self.files)
        done = tuple(
            OneFile(file.name, len(file.data), seconds)
            for file, seconds in zip(self.files, each, strict=False)
        )
        return Fetched(path.name, done, (times[-1][1] - times[0][0]) / 1e9)
