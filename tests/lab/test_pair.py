"""The namespaces of the benches: gone with the bench, or with `tunnelmark clean`."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from emulator import FarEnd
from pair import SERVER, pair

from tunnelmark.hosts.ledger import dead_ledgers

pytestmark = pytest.mark.lab

_BENCH = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
from pair import pair
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with pair(sys.argv[2]) as made:
    waiting = made.start(made.client, ["sleep", "1000"])
    # What starts it ties its life to ours first; killed before that, only the ledger knows of it.
    while open(f"/proc/{waiting.pid}/comm").read() != "sleep\\n":
        time.sleep(0.01)
    print(made.client, waiting.pid, flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_a_bench_that_ends_leaves_nothing(
    engine: str, monkeypatch: pytest.MonkeyPatch, end: signal.Signals
) -> None:
    bench = str(Path(__file__).parents[2] / "bench")
    with tempfile.TemporaryDirectory(prefix="tm") as root:
        monkeypatch.setenv("TUNNELMARK_RUNTIME", root)
        argv = [sys.executable, "-c", _BENCH, bench, engine]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            namespace, pid = run.stdout.readline().split()
            assert _there(namespace)
            program = os.pidfd_open(int(pid))
            try:
                run.send_signal(end)
                # The kernel ends its programs with it, whatever ends it.
                assert select.select([program], [], [], 20)[0]
            finally:
                os.close(program)
            run.wait(30)
        dead = dead_ledgers(Path(root))
        assert len(dead) == (end is signal.SIGKILL)
        for one in dead:
            one.clean()
        assert not _there(namespace)
        assert list(Path(root).iterdir()) == []


def test_frames_are_counted_at_the_far_end(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="tm") as root:
        monkeypatch.setenv("TUNNELMARK_RUNTIME", root)
        with pair(engine) as made:
            far = FarEnd(made)
            before, at_s = far.received()
            made.run(made.client, ["ping", "-c", "5", "-i", "0.01", SERVER])
            after, later_s = far.received()
    # Five pings, and what resolves the address.
    assert 5 <= after - before <= 10
    assert later_s > at_s


def _there(namespace: str) -> bool:
    return Path("/run/netns", namespace).exists()
