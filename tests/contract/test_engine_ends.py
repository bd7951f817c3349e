"""What must end the engine ends it: one line that says why, and the exit status."""

import json
import os
import resource
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534


def reflect(**changes: object) -> dict[str, Any]:
    return {
        "protocol": 2,
        "listen": ["127.0.0.1:0"],
        "sessions": [{"flow": 0, "session": 1, "key": "00" * 16}],
        "records": None,
        "realtime_priority": None,
        "cpu": None,
        "socket_buffer_bytes": 1 << 16,
        **changes,
    }


def send(flows: int = 1, **changes: object) -> dict[str, Any]:
    flow = {
        "stamp": {"key": None},
        "target": "127.0.0.1:9",
        "source": None,
        "interface": None,
        "start_offset_ns": 0,
        "schedule": {"type": "fixed", "gap_ns": 1_000_000},
        "stop": {"type": "duration", "duration_ns": 3_600_000_000_000},
        "size": {"type": "fixed", "payload_bytes": 100},
        "content": {"type": "zero"},
    }
    return {
        "protocol": 2,
        "flows": [{"flow": number, **flow} for number in range(flows)],
        "seed": 1,
        "drain_ns": 0,
        "late_ns": 0,
        "missed": "send",
        "dont_fragment": False,
        "records": None,
        "realtime_priority": None,
        "send_cpu": None,
        "receive_cpu": None,
        "socket_buffer_bytes": 1 << 16,
        **changes,
    }


def answer(**changes: object) -> dict[str, Any]:
    message = {
        "transport": "tcp",
        "session": 1,
        "request_bytes": 64,
        "response_bytes": 64,
    }
    return {"protocol": 2, "message": message, "listen": ["127.0.0.1:0"], **changes}


def start(command: Sequence[str], config: dict[str, Any], **limits: int) -> subprocess.Popen[str]:
    """Start the engine; ``limits`` are limits of the process by their names."""

    def limit() -> None:
        for name, most in limits.items():
            resource.setrlimit(getattr(resource, name), (most, most))

    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=limit if limits else None,  # noqa: PLW1509 - no thread runs here
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(config))
    process.stdin.close()
    return process


def last_words(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit status and the message of the last event, the only one of its kind."""
    with process:
        assert process.stdout is not None
        events = [json.loads(line) for line in process.stdout]
    errors = [event for event in events if event["event"] == "error"]
    assert errors == events[-1:], events
    return process.returncode, errors[0]["message"]


@pytest.mark.parametrize("cpu", [1024, 60_000, 65_536])
def test_a_processor_that_is_not_there(engine: str, cpu: int) -> None:
    beyond = cpu > 65_535
    for command, config, key in (
        ("reflect", reflect(cpu=cpu), "cpu"),
        ("send", send(send_cpu=cpu), "send_cpu"),
        ("send", send(receive_cpu=cpu), "receive_cpu"),
    ):
        status, message = last_words(start([engine, command, "-"], config))
        wanted = f"{key} is {cpu}, must be 0 to 65535" if beyond else f"cpu is {cpu}, cannot pin"
        assert message.startswith(wanted)
        assert status == (2 if beyond else 1)


def test_an_answering_end_without_descriptors(engine: str) -> None:
    process = start([engine, "answer", "-"], answer(), RLIMIT_NOFILE=16)
    with process, ExitStack() as opened:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        port = int(ready["listen"][0].rpartition(":")[2])
        # It may have ended before the last of them.
        with suppress(ConnectionError):
            for _ in range(16):
                opened.enter_context(socket.create_connection(("127.0.0.1", port), 20))
        status, message = last_words(process)
    assert status == 1
    assert message.startswith(f"accept on 127.0.0.1:{port}: Too many open files")


def test_a_sender_without_descriptors(engine: str) -> None:
    status, message = last_words(start([engine, "send", "-"], send(30), RLIMIT_NOFILE=20))
    assert status == 1
    assert "Too many open files" in message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, who has no threads")
@pytest.mark.parametrize(
    ("command", "config"), [("send", send()), ("answer", answer())], ids=["send", "answer"]
)
def test_without_threads(engine: str, command: str, config: dict[str, Any]) -> None:
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # One process it is already. The file is opened before it is somebody else's.
    with open(engine, "rb") as program:  # noqa: PTH123 - a descriptor is wanted
        name = f"/proc/self/fd/{program.fileno()}"
        os.set_inheritable(program.fileno(), True)
        process = subprocess.Popen(
            [*become, "prlimit", "--nproc=1:1", name, command, "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            pass_fds=[program.fileno()],
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(config))
    process.stdin.close()
    status, message = last_words(process)
    assert status == 1
    assert message.startswith("cannot start the thread")


@pytest.mark.parametrize(
    ("command", "config"),
    [("reflect", reflect()), ("send", send()), ("answer", answer())],
    ids=["reflect", "send", "answer"],
)
def test_events_that_nobody_reads(engine: str, command: str, config: dict[str, Any]) -> None:
    # Whoever started it reads no more, and does not end it either.
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as nobody:  # noqa: PTH123 - a descriptor
        process = subprocess.run(
            [engine, command, "-"],
            input=json.dumps(config),
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert process.returncode == 1
    reason = "standard output: the events cannot be written: Broken pipe (os error 32)"
    assert process.stderr == f"tunnelmark-engine: error: {reason}\n"


@pytest.mark.parametrize("words", [["send", "-"], ["--help"], ["no-such-command"]])
def test_errors_that_nobody_reads(engine: str, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as nobody:  # noqa: PTH123 - a descriptor
        process = subprocess.run(
            [engine, *words], input="{}", stdout=nobody, stderr=nobody, text=True, check=False
        )
    assert process.returncode == (0 if words == ["--help"] else 2)


def test_a_disk_that_takes_no_more(engine: str, tmp_path: Path) -> None:
    # A pipe stands for the disk: it takes the header, then nothing. The run would be an hour's.
    files = {name: tmp_path / name for name in ("send", "reflect")}
    for file in files.values():
        os.mkfifo(file)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    stamp = {"flow": 0, "listen": target, "key": None}
    reflector = start(
        [engine, "reflect", "-"],
        reflect(listen=[], sessions=[], stamp=[stamp], records=str(files["reflect"])),
    )
    _take_a_header(files["reflect"])
    config = send(records=None)
    config["flows"][0] |= {"target": target, "schedule": {"type": "fixed", "gap_ns": 100_000}}
    with start([engine, "send", "-"], config) as feeding:
        status, message = last_words(reflector)
        assert (status, message) == (1, "writing the record file: Broken pipe (os error 32)")
        feeding.terminate()
        assert feeding.stdout is not None
        feeding.stdout.read()
    config["records"] = str(files["send"])
    sender = start([engine, "send", "-"], config)
    _take_a_header(files["send"])
    status, message = last_words(sender)
    assert (status, message) == (1, "writing the record file: Broken pipe (os error 32)")


def _take_a_header(pipe: Path) -> None:
    with pipe.open("rb") as opened:
        assert len(opened.read(64)) == 64
