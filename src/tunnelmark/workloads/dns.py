"""Names looked up: dnsperf against a dnsmasq that knows them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Need, Process
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import DurationNs
from tunnelmark.model.trial import Measurement
from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.model.validity import Check
from tunnelmark.workloads.base import Outcome, TrialContext, Workload
from tunnelmark.workloads.dnsperf import Account, parse_account
from tunnelmark.workloads.programs import Bench, words
from tunnelmark.workloads.quantiles import needed, too_few
from tunnelmark.workloads.web_server import ports

_END_LIMIT_S: Final = 30.0
_MOST_QUERIES: Final = 10_000_000
_HIGHEST_RATE: Final = 100_000
"""What dnsperf does at most, for the size of its account."""
_LARGEST_ACCOUNT_BYTES: Final = 1 << 30
_DOMAIN: Final = "tunnelmark.test"  # RFC 6761 section 6.2: nobody has it
_HEADER_BYTES: Final = 12
_QUESTION_BYTES: Final = 4
_TAILS: Final = {"dns_latency_p95_ns": 95, "dns_latency_p99_ns": 99}
_ANSWER_BYTES: Final = 16  # RFC 1035 section 4.1.3: pointer, type, class, TTL, length, address

# Only words given as arguments are used. dnsperf reports nothing when it is terminated, only
# when it is interrupted; the signal reaches all programs of the group, so it passes it by.
_INTERRUPTED: Final = (
    "out=$1; shift; trap 'kill -INT \"$pid\" 2>/dev/null' TERM; "
    "setpriv --pdeathsig KILL env --ignore-signal=TERM --default-signal=INT "
    '"$@" >"$out" & pid=$!; wait "$pid"; status=$?; '
    'if kill -0 "$pid" 2>/dev/null; then wait "$pid"; status=$?; fi; exit "$status"'
)


class DnsParams(Params):
    """Queries for addresses."""

    duration: Annotated[DurationNs, Field(ge=10**9, le=3600 * 10**9)] = Field(
        10 * 10**9, description="how long queries are sent, in whole seconds"
    )
    transport: Literal["udp", "tcp"] = Field("udp", description="how queries are carried")
    outstanding: Annotated[int, Field(ge=1, le=10_000)] = Field(
        10, description="outstanding queries on each path"
    )
    rate: Annotated[int, Field(ge=1, le=_HIGHEST_RATE)] | None = Field(
        None, description="most queries per second on each path; none: as fast as answers come"
    )
    names: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1000, description="number of names, queried in turn"
    )
    timeout: Annotated[DurationNs, Field(ge=10**9, le=60 * 10**9)] = Field(
        5 * 10**9, description="timeout after which a query counts as lost; whole seconds"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, value in (("duration", self.duration), ("timeout", self.timeout)):
            if value % 10**9:
                raise ValueError(f"{name} is {value / 1e9:g} s, must be whole seconds")
        most = self.duration // 10**9 * (self.rate or _HIGHEST_RATE)
        if most > _MOST_QUERIES:
            raise ValueError(
                f"duration allows {most} queries, at most {_MOST_QUERIES}: shorten it or set rate"
            )
        return self


@dataclass(frozen=True)
class _Client:
    """dnsperf on one path."""

    path: TrafficPath
    process: Process
    account: PurePosixPath


class Dns(Workload):
    """A pair of dnsmasq and dnsperf for each path, all at once."""

    kind: ClassVar[str] = "dns"
    title: ClassVar[str] = "DNS queries"
    params_type: ClassVar[type[Params]] = DnsParams
    metrics: ClassVar[tuple[str, ...]] = (
        "dns_queries_per_s",
        "dns_latency_p50_ns",
        "dns_latency_p95_ns",
        "dns_latency_p99_ns",
        "dns_latency_max_ns",
        "dns_lost_ratio",
    )
    params: DnsParams

    def need(self) -> Need:
        """Need the server, the client, and ss to see that the server listens."""
        return Need(
            programs={
                "dnsmasq": "dnsmasq-base",
                "dnsperf": "dnsperf",
                "ss": "iproute2",
                "setpriv": "util-linux",
                "env": "coreutils",
            }
        )

    def withheld(self, metric: str, paths: int = 1) -> str | None:
        """Return that there are too few queries for the percentile, or None."""
        if self.params.rate is None:
            return None
        count = self.params.duration // 10**9 * self.params.rate
        said = f"rate and duration allow {count} queries"
        tails = {name: (percent, said, count) for name, percent in _TAILS.items()}
        return too_few(metric, tails, paths=paths)

    @property
    def expected_s(self) -> float:
        """Sending, and a second for the servers."""
        return self.params.duration / 1e9 + 1

    def run(self, context: TrialContext) -> Outcome:
        """Run one trial."""
        try:
            with Bench(context, self.kind) as bench:
                return self._trial(context, bench)
        except LabError as error:
            failed = Check("processes", ok=False, message=str(error))
            return Outcome((), (failed,), 0, 0, 0.0)

    def _trial(self, context: TrialContext, bench: Bench) -> Outcome:
        params = self.params
        servers = self._servers(context, bench)
        clients = self._clients(context, bench)
        problems = bench.follow(
            [client.process for client in clients],
            servers,
            expected_s=self.expected_s,
            limit_s=(params.duration + params.timeout) / 1e9 + _END_LIMIT_S,
        )
        accounts: list[tuple[str, Account]] = []
        for client in clients:
            if (status := client.process.poll()) and not bench.enough:
                problems.append(
                    f"dnsperf on the client ended with status {status}: {words(client.process)}"
                )
                continue
            try:
                data = context.client.get(client.account, limit_bytes=_LARGEST_ACCOUNT_BYTES)
                accounts.append((client.path.name, parse_account(data)))
            except (LabError, ValueError) as error:
                problems.append(str(error))
        alive = Check(
            "processes",
            ok=not problems,
            message="; ".join(dict.fromkeys(problems)) or "all clients finished",
        )
        if not accounts:
            return Outcome((), (alive,), 0, 0, 0.0)
        return self._outcome(accounts, (alive, _answers(accounts)))

    def _servers(self, context: TrialContext, bench: Bench) -> list[Process]:
        folder = bench.directory(context.server)
        hosts = "".join(
            f"198.18.{number >> 8 & 255}.{number & 255} {name}\n"
            for number, name in enumerate(_names(self.params.names))
        )
        context.server.put(folder / "hosts", hosts.encode())
        numbers = ports(context.paths, context.first_port)
        user = context.server.run(["id", "-un"]).text().strip()
        servers = []
        for path, port in zip(context.paths, numbers, strict=True):
            lines = [
                f"port={port}",
                f"listen-address={path.server_listens}",
                *("bind-interfaces", "no-resolv", "no-hosts", "no-poll", "cache-size=0"),
                f"addn-hosts={folder / 'hosts'}",
                f"local=/{_DOMAIN}/",
                f"dns-forward-max={max(150, self.params.outstanding)}",
                *("pid-file", "log-facility=-", f"user={user}"),
            ]
            config = folder / f"dnsmasq-{path.name}.conf"
            context.server.put(config, "\n".join([*lines, ""]).encode())
            servers.append(
                bench.start(
                    context.server,
                    ["dnsmasq", "--keep-in-foreground", f"--conf-file={config}"],
                    name=f"dnsmasq-{path.name}",
                )
            )
        for server, path, port in zip(servers, context.paths, numbers, strict=True):
            address = path.server_listens
            bench.listening(context.server, server, address, port, kind=self.params.transport)
        return servers

    def _clients(self, context: TrialContext, bench: Bench) -> list[_Client]:
        params = self.params
        folder = bench.directory(context.client)
        context.client.put(
            folder / "queries", "".join(f"{name} A\n" for name in _names(params.names)).encode()
        )
        numbers = ports(context.paths, context.first_port)
        clients = []
        for path, port in zip(context.paths, numbers, strict=True):
            account = folder / f"dnsperf-{path.name}.txt"
            argv = [
                *("dnsperf", "-v", "-m", params.transport, "-d", str(folder / "queries")),
                *("-s", path.server_address, "-p", str(port), "-a", path.client_address),
                *("-l", str(params.duration // 10**9), "-t", str(params.timeout // 10**9)),
                *("-c", "1", "-T", "1", "-q", str(params.outstanding)),
                *(("-Q", str(params.rate)) if params.rate is not None else ()),
            ]
            process = bench.start(
                context.client,
                ["sh", "-c", _INTERRUPTED, "interrupted", str(account), *argv],
                name=f"dnsperf-{path.name}",
            )
            clients.append(_Client(path, process, account))
        return clients

    def _outcome(
        self, accounts: Sequence[tuple[str, Account]], checks: tuple[Check, ...]
    ) -> Outcome:
        every = [account for _, account in accounts]
        completed = sum(account.completed for account in every)
        # Question and answer without compression of anything but the name (RFC 1035 section 4.1).
        name = len(_names(1)[0]) + 2
        query = _HEADER_BYTES + name + _QUESTION_BYTES
        return Outcome(
            (
                Measurement("total", figures(every)),
                *(Measurement(path, figures([account])) for path, account in accounts),
            ),
            checks,
            payload_bytes=completed * (2 * query + _ANSWER_BYTES),
            payload_packets=2 * completed,
            measuring_s=max(account.run_s for account in every),
            details={
                "queries": {
                    path: {"sent": a.sent, "completed": a.completed, "lost": a.lost}
                    for path, a in accounts
                }
            },
        )


def figures(accounts: Sequence[Account]) -> dict[str, float | None]:
    """Return the metrics of some paths together: rates add up, latencies are pooled."""
    latencies = np.concatenate([np.asarray(a.latencies_s, dtype=float) for a in accounts])
    sent = sum(account.completed + account.lost for account in accounts)
    rates = [account.completed / account.run_s for account in accounts if account.run_s > 0]

    def quantile(share: float) -> float | None:
        return float(np.quantile(latencies, share)) * 1e9 if len(latencies) else None

    return {
        "dns_queries_per_s": sum(rates) if rates else None,
        "dns_latency_p50_ns": quantile(0.5),
        **{
            name: quantile(percent / 100) if len(latencies) >= needed(percent) else None
            for name, percent in _TAILS.items()
        },
        "dns_latency_max_ns": quantile(1.0),
        "dns_lost_ratio": sum(a.lost for a in accounts) / sent if sent else None,
    }


def _names(count: int) -> list[str]:
    """Return names of one length."""
    return [f"host-{number:06}.{_DOMAIN}" for number in range(count)]


def _answers(accounts: Sequence[tuple[str, Account]]) -> Check:
    """Judge whether queries were answered at all, and with what was asked for."""
    problems = []
    for path, account in accounts:
        if not account.completed:
            problems.append(
                f"none of {account.sent} queries on path {path} was answered: "
                "refused, or lost on the way"
            )
        elif wrong := account.codes - {"NOERROR"}:
            problems.append(f"the server answered {', '.join(sorted(wrong))} on path {path}")
    completed = sum(account.completed for _, account in accounts)
    return Check(
        "answers",
        ok=not problems,
        message="; ".join(problems) or f"{completed} queries were answered with an address",
    )
