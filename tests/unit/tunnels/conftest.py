"""A host of which a test decides what it has and what its programs say; nothing is started."""

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed, Host, Process
from tunnelmark.model.tunnel import Endpoint, Site

Answer = Callable[[tuple[str, ...], bytes | None], tuple[int, str]]


@dataclass
class FakeProcess:
    """A daemon whose log and end the test writes."""

    argv: tuple[str, ...]
    name: str
    env: Mapping[str, str]
    private_dirs: Sequence[str]
    pid: int
    log: str = ""
    status: int | None = None
    stopped: int = 0

    @property
    def host_pid(self) -> int:
        return self.pid

    def poll(self) -> int | None:
        return self.status

    def wait(self, timeout_s: float) -> int:
        if self.status is None:
            raise TimeoutError(timeout_s)
        return self.status

    def stop(self, grace_s: float = 2.0) -> int:
        del grace_s
        self.stopped += 1
        self.status = -15 if self.status is None else self.status
        return self.status

    def kill(self) -> None:
        self.status = -9

    def read_line(self, timeout_s: float) -> str | None:
        raise TimeoutError(timeout_s)

    def log_tail(self, lines: int = 5) -> str:
        return "\n".join(self.log.splitlines()[-lines:])


@dataclass
class FakeHost:
    """Programs that exist and answer as the test says; every call is kept."""

    name: str
    programs: set[str] = field(default_factory=set)
    kernel: set[str] = field(default_factory=set)
    answer: Answer = lambda _argv, _stdin: (0, "")
    started: Callable[[FakeProcess], None] = lambda _process: None
    ran: list[tuple[tuple[str, ...], bytes | None]] = field(default_factory=list)
    spawned: list[FakeProcess] = field(default_factory=list)
    files: dict[PurePosixPath, tuple[bytes, int]] = field(default_factory=dict)

    @property
    def unique(self) -> str:
        return f"tm0-{self.name}"

    @property
    def work_dir(self) -> PurePosixPath:
        return PurePosixPath("/fake") / self.name

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 10.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] = {},
        check: bool = True,
    ) -> Completed:
        del timeout_s, env
        self.ran.append((tuple(argv), stdin))
        status, text = self.answer(tuple(argv), stdin)
        done = Completed(tuple(argv), status, text.encode(), b"")
        if check and status:
            raise LabError(f"{argv[0]} on {self.name}: {done.last_words()}")
        return done

    def spawn(
        self,
        argv: Sequence[str],
        *,
        name: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] = {},
        private_dirs: Sequence[str] = (),
        lines: bool = False,
    ) -> Process:
        del stdin, lines
        process = FakeProcess(tuple(argv), name, env, private_dirs, 1000 + len(self.spawned))
        self.spawned.append(process)
        self.started(process)
        return process

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        self.files[path] = (data, stat.S_IMODE(mode))

    def get(self, path: PurePosixPath, *, limit_bytes: int = 1 << 30) -> bytes:
        return self.files[path][0][:limit_bytes]

    def has(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

    def has_kernel(self, feature: str) -> bool:
        return feature in self.kernel


@pytest.fixture
def hosts() -> tuple[FakeHost, FakeHost]:
    return FakeHost("client"), FakeHost("server")


@pytest.fixture
def site(hosts: tuple[FakeHost, FakeHost]) -> Site:
    client: Host
    client, server = hosts
    return Site(
        client=Endpoint(client, "198.18.0.1", "fd00::1", "eth0", 1500),
        server=Endpoint(server, "198.18.0.2", "fd00::2", "eth0", 1500),
        prefix="tmabcde",
        inner_ipv4=lambda number: (f"198.19.0.{number * 4 + 1}", f"198.19.0.{number * 4 + 2}"),
        inner_ipv6=lambda number: (f"fd00:1:{number:x}::1", f"fd00:1:{number:x}::2"),
    )
