"""Pages as a browser loads them: a document, then many small and some large objects at once."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Need, Process
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs, SizeBytes
from tunnelmark.model.trial import Measurement
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.workloads import curl, http2_lengths, http_lengths, web_server
from tunnelmark.workloads.arrival import damaged, few, put_files, reported
from tunnelmark.workloads.base import Outcome, TrialContext
from tunnelmark.workloads.congestion import TcpParams, TcpWorkload
from tunnelmark.workloads.corpus import LARGEST_BYTES, File
from tunnelmark.workloads.exchanges import CarryClients, Client, Exchanged, Stage
from tunnelmark.workloads.pages import (
    TAIL,
    Page,
    figures,
    page_details,
    page_of,
    read_pages,
    site,
)
from tunnelmark.workloads.patience import patience_s
from tunnelmark.workloads.programs import Bench, words
from tunnelmark.workloads.quantiles import too_few

_LARGEST_TRACE_BYTES: Final = 128 << 20
_MOST_REQUESTS: Final = 50_000
_PAGE_LIMIT_S: Final = 1.0
_MOST_DETAILS: Final = 600

# Only words given as arguments are used: number of pages, pause, two configurations, the log,
# words for the objects alone, then the program.
_PAGES: Final = (
    'pages=$1; pause=$2; document=$3; objects=$4; log=$5; most=$6; shift 6; exec 2>"$log"; page=0; '
    'while [ "$page" -lt "$pages" ]; do '
    'if [ "$page" -gt 0 ]; then sleep "$pause"; fi; page=$((page+1)); '
    'echo "document $page"; echo "document $page" >&2; "$@" --config "$document" || exit; '
    'echo "objects $page"; echo "objects $page" >&2; '
    '"$@" --parallel --parallel-max "$most" --config "$objects" || exit; '
    'echo "done $page"; done'
)


class WebParams(TcpParams):
    """Pages that are loaded one after the other."""

    pages: Annotated[int, Field(ge=1, le=10_000)] = Field(10, description="pages on each path")
    pause: Annotated[DurationNs, Field(ge=0, le=3600 * 10**9)] = Field(
        0, description="between the end of a page and the next one"
    )
    protocol: Literal["http", "https"] = Field("https", description="without or with TLS")
    http: Literal["1.1", "2"] = Field(
        "1.1", description="version of HTTP; 2 has all requests in one connection, with TLS only"
    )
    connections: Annotated[int, Field(ge=1, le=64)] = Field(
        6, description="parallel connections for the objects of HTTP/1.1; browsers use six"
    )
    document_bytes: Annotated[SizeBytes, Field(ge=1, le=10**8)] = Field(
        30_000, description="size of the document, which is loaded first"
    )
    small: Annotated[int, Field(ge=0, le=1000)] = Field(
        40, description="small objects of a page; they are texts"
    )
    small_bytes: Annotated[SizeBytes, Field(ge=1, le=10**8)] = Field(
        8_000, description="size of each small object"
    )
    large: Annotated[int, Field(ge=0, le=1000)] = Field(
        4, description="large objects of a page; they are pictures"
    )
    large_bytes: Annotated[SizeBytes, Field(ge=1, le=10**8)] = Field(
        200_000, description="size of each large object"
    )
    tls: curl.TlsVersion = Field("1.3", description="TLS version of https")
    corpus_seed: Annotated[int, Field(ge=0, lt=1 << 32)] = Field(
        1, description="the objects are generated from it, the same in every trial"
    )
    limit: Annotated[DurationNs, Field(ge=10**9)] | None = Field(
        None,
        description="longest duration of a trial; none: a minute, 5 s per page, and ten times what "
        "the link needs",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.http == "2" and self.protocol == "http":
            raise ValueError("http is '2', which goes with protocol = 'https' only")
        if not self.small + self.large:
            raise ValueError("small and large are 0, a page has at least one object")
        if (requests := self.pages * (1 + self.small + self.large)) > _MOST_REQUESTS:
            raise ValueError(f"pages of {requests} requests in total, at most {_MOST_REQUESTS}")
        if self.page_bytes > LARGEST_BYTES:
            raise ValueError(f"a page has {self.page_bytes} bytes, at most {LARGEST_BYTES}")
        return self

    @property
    def page_bytes(self) -> int:
        """Everything of one page."""
        objects = self.small * self.small_bytes + self.large * self.large_bytes
        return self.document_bytes + objects

    @property
    def secure(self) -> curl.Tls | None:
        """What is asked of TLS."""
        return curl.Tls(self.tls, None) if self.protocol == "https" else None


@dataclass(frozen=True)
class _Client:
    """A shell with one curl after the other, on one path."""

    path: TrafficPath
    process: Process
    folder: PurePosixPath
    log: PurePosixPath


class Web(TcpWorkload):
    """nginx and curl; each path loads all pages, all paths at once."""

    kind: ClassVar[str] = "web"
    title: ClassVar[str] = "Web pages"
    simulated: ClassVar[bool] = True
    params_type: ClassVar[type[Params]] = WebParams
    metrics: ClassVar[tuple[str, ...]] = (
        "web_page_p50_ns",
        "web_page_p95_ns",
        "web_page_max_ns",
        "web_ttfb_p50_ns",
        "web_object_p50_ns",
        "web_object_p95_ns",
        "web_goodput_bit_s",
    )
    params: WebParams

    def need(self) -> Need:
        """Need nginx and curl."""
        return Need(programs=web_server.PROGRAMS)

    def withheld(self, metric: str, paths: int = 1) -> str | None:
        """Return that there are too few pages or objects for the percentile, or None."""
        params = self.params
        objects = params.pages * (params.small + params.large)
        tails = {
            "web_page_p95_ns": (TAIL, f"pages is {params.pages}", params.pages),
            "web_object_p95_ns": (TAIL, f"pages have {objects} objects", objects),
        }
        return too_few(metric, tails, paths=paths, remedy="load more")

    @property
    def content(self) -> str:
        """What is encrypted gets no smaller."""
        return "text" if self.params.protocol == "http" else "random"

    @property
    def expected_s(self) -> float:
        """A second a page, and the pauses: only the time that was seen is more precise."""
        return 2 + self.params.pages * (_PAGE_LIMIT_S + self.params.pause / 1e9)

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        params = self.params
        files = site(
            params.document_bytes,
            (params.small, params.small_bytes),
            (params.large, params.large_bytes),
            params.corpus_seed,
        )
        try:
            if context.carry_clients is not None:
                return self._without_programs(context, context.carry_clients, files)
            with Bench(context, self.kind) as bench:
                return self._trial(context, bench, files)
        except LabError as error:
            failed = Check("processes", ok=False, message=str(error))
            return Outcome((), (failed,), 0, 0, 0.0)

    def _trial(self, context: TrialContext, bench: Bench, files: tuple[File, ...]) -> Outcome:
        root = bench.directory(context.server) / "files"
        put_files(context.server, root, files)
        tls = self.params.secure
        server = web_server.start_web_server(
            context, bench, root, tls=tls, http2=self.params.http == "2"
        )
        clients = self._clients(context, bench, server, files)
        problems = bench.follow(
            [client.process for client in clients],
            [server.process],
            expected_s=self.expected_s,
            limit_s=self._limit_s(context),
        )
        pages: list[tuple[str, tuple[Page, ...]]] = []
        agreed: set[tuple[str, str]] = set()
        for client in clients:
            log = context.client.get(client.log, limit_bytes=_LARGEST_TRACE_BYTES)
            trace = log.decode("utf-8", "replace")
            agreed |= curl.negotiated(trace)
            if (status := client.process.poll()) and not bench.enough:
                problems.append(
                    f"curl on the client ended with status {status}: "
                    f"{curl.complaint(trace) or words(client.process)}"
                )
            try:
                pages.append((client.path.name, read_pages(reported(client.process), trace, files)))
            except ValueError as error:
                problems.append(str(error))
        checks = (
            Check(
                "processes",
                ok=not problems,
                message="; ".join(dict.fromkeys(problems)) or "all pages were loaded",
            ),
            self._content(context, clients, files, ended=bench.enough),
            _agreed(agreed, tls),
        )
        return self._outcome(context, pages, checks)

    def _without_programs(
        self, context: TrialContext, carry: CarryClients, files: tuple[File, ...]
    ) -> Outcome:
        """Run one trial in virtual time: what curl and nginx send, and take no time for."""
        params = self.params
        servers = [path.server_address for path in context.paths]
        clients, addresses = [], []
        numbers = web_server.ports(context.paths, context.first_port)
        for path, port in zip(context.paths, numbers, strict=True):
            urls = [
                curl.url(params.protocol, path.server_address, port, file.name) for file in files
            ]
            parts = self._stages(urls, [len(file.data) for file in files], servers)
            later = [replace(parts[0], wait_ns=params.pause), parts[1]]
            addresses.append(urls)
            clients.append(
                Client(
                    path=path,
                    stages=(*parts, *later * (params.pages - 1)),
                    congestion=params.congestion,
                    patience_ns=curl.STALL_LIMIT_S * 10**9,
                    limit_ns=round(self._limit_s(context) * 1e9),
                )
            )
        ends = carry(clients).clients
        lost = [path.name for path, end in zip(context.paths, ends, strict=True) if end.gave_up]
        alive = Check(
            "processes",
            ok=not lost,
            message=f"curl gave up on path {', '.join(lost)}" if lost else "all pages were loaded",
        )
        pages = [
            (path.name, _loaded(end.exchanges, urls, files))
            for path, urls, end in zip(context.paths, addresses, ends, strict=True)
        ]
        return self._outcome(context, pages, (alive,))

    def _stages(
        self, urls: Sequence[str], sizes_bytes: Sequence[int], servers: Sequence[str]
    ) -> tuple[Stage, Stage]:
        """Return what curl does for the document, and then for the objects."""
        tls = self.params.secure
        if tls is None or self.params.http == "1.1":
            opening = http_lengths.opening(tls, servers)
            document, *objects = [
                http_lengths.fetch(url, size_bytes, tls=tls, close=False)
                for url, size_bytes in zip(urls, sizes_bytes, strict=True)
            ]
            most = self.params.connections
            return (
                Stage((document,), opening=opening),
                Stage(tuple(objects), connections=most, opening=opening),
            )
        opening, turns = http2_lengths.opening(tls, servers), http2_lengths.turns(tls)
        first, rest = (
            Stage(
                http2_lengths.fetch(urls[part], sizes_bytes[part], tls),
                opening=opening,
                turns=turns,
            )
            for part in (slice(1), slice(1, None))
        )
        return first, rest

    def _clients(
        self,
        context: TrialContext,
        bench: Bench,
        server: web_server.WebServer,
        files: Sequence[File],
    ) -> list[_Client]:
        params = self.params
        home = bench.directory(context.client)
        tls = params.secure
        numbers = web_server.ports(context.paths, context.first_port)
        clients = []
        for path, port in zip(context.paths, numbers, strict=True):
            folder, log = home / f"path-{path.name}", home / f"curl-{path.name}.log"
            context.client.run(["mkdir", "-m", "700", "--", str(folder)])
            first, *rest = [
                f'url = "{curl.url(params.protocol, path.server_address, port, file.name)}"\n'
                f'output = "{folder / file.name}"\n'
                for file in files
            ]
            document, objects = home / f"document-{path.name}", home / f"objects-{path.name}"
            context.client.put(document, first.encode())
            context.client.put(objects, "".join(rest).encode())
            most = params.connections if params.http == "1.1" else http2_lengths.MOST_STREAMS
            process = bench.start(
                context.client,
                [
                    *("sh", "-c", _PAGES, "pages", str(params.pages), f"{params.pause / 1e9:f}"),
                    *(str(document), str(objects), str(log), str(most)),
                    *("setpriv", "--pdeathsig", "KILL"),
                    *curl.arguments(
                        source=path.client_address,
                        tls=tls.arguments(server.certificate) if tls and server.certificate else (),
                    ),
                    "--http2" if params.http == "2" else "--http1.1",
                ],
                name=f"curl-{path.name}",
                lines=True,
            )
            clients.append(_Client(path, process, folder, log))
        return clients

    def _limit_s(self, context: TrialContext) -> float:
        params = self.params
        if params.limit is not None:
            return params.limit / 1e9
        pauses_s = params.pages * params.pause / 1e9
        moved = params.pages * params.page_bytes * len(context.paths)
        return pauses_s + patience_s(context.link, moved, things=params.pages)

    def _content(
        self,
        context: TrialContext,
        clients: Sequence[_Client],
        files: Sequence[File],
        *,
        ended: bool,
    ) -> Check:
        """Compare the last page of each path; each page's sizes are compared at once."""
        problems: list[str] = []
        for client in () if ended else clients:
            problems += damaged(context.client, client.folder, files)
        return Check(
            "content",
            ok=not problems,
            message=few(problems)
            or ("a page was aborted" if ended else "the last page is what was sent (SHA-256)"),
            value=float(len(problems)),
            limit=0.0,
            unit="file",
        )

    def _outcome(
        self,
        context: TrialContext,
        pages: Sequence[tuple[str, tuple[Page, ...]]],
        checks: tuple[Check, ...],
    ) -> Outcome:
        every = [page for _, found in pages for page in found]
        moved = sum(page.payload_bytes for page in every)
        mss = max(1, min(path.mtu_bytes for path in context.paths) - 52)
        # The tunnel is there between the pages, too.
        pause_s = self.params.pause / 1e9
        spans = [
            sum(page.seconds for page in found) + pause_s * max(0, len(found) - 1)
            for _, found in pages
        ]
        if not every:
            return Outcome((), checks, 0, 0, 0.0)
        return Outcome(
            (
                Measurement("total", figures([found for _, found in pages])),
                *(Measurement(name, figures([found])) for name, found in pages),
            ),
            checks,
            payload_bytes=moved,
            payload_packets=moved // mss,
            measuring_s=max(spans),
            details={
                "page": {"bytes": self.params.page_bytes, "median_s": _median(every)},
                "pages": {name: page_details(found[:_MOST_DETAILS]) for name, found in pages},
            },
        )


def _loaded(
    exchanges: Sequence[Exchanged], urls: Sequence[str], files: Sequence[File]
) -> tuple[Page, ...]:
    """Return the pages that came to their end, of stages in pairs: a document, its objects."""
    lengths = {file.name: len(file.data) for file in files}
    stages: dict[int, list[Exchanged]] = {}
    for one in exchanges:
        stages.setdefault(one.stage, []).append(one)
    pages = []
    for number in range(len(stages) // 2):
        parts = [stages[2 * number], stages[2 * number + 1]]
        if len(parts[1]) < len(files) - 1:
            break
        # The document is the first file; places of objects count from behind it.
        found = [
            curl.transferred(
                one, urls[one.place + behind], downloaded=len(files[one.place + behind].data)
            )
            for behind, part in enumerate(parts)
            for one in part
        ]
        seconds = sum(
            (max(one.done_ns for one in part) - min(one.began_ns for one in part)) / 1e9
            for part in parts
        )
        pages.append(page_of(number + 1, found, seconds, lengths))
    return tuple(pages)


def _median(pages: Sequence[Page]) -> float:
    return statistics.median(page.seconds for page in pages)


def _agreed(agreed: set[tuple[str, str]], tls: curl.Tls | None) -> Check:
    if tls is None:
        return Check("negotiated", ok=True, message="HTTP without encryption")
    said = ", ".join(f"{version} / {cipher}" for version, cipher in sorted(agreed)) or "nothing"
    return Check(
        "negotiated",
        # Who did not get so far says so in another check.
        ok=all(version == f"TLSv{tls.version}" for version, _ in agreed),
        message=f"{said} was negotiated, TLSv{tls.version} was requested",
    )
