"""The doors by which data that others wrote comes into the Python half.

Behind each stands one exception of ours for all that it refuses; anything else is a fault. With a
name as the argument this file fuzzes that door by coverage (Atheris), with libFuzzer's options
behind the name; ``scripts/fuzz`` does so for all. Without, it lists them. ``tests/unit/test_doors``
knocks on them a few times with changed seeds.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

SEEDS: Final = Path(__file__).parent / "seeds"


@dataclass(frozen=True)
class Door:
    """One place at which bytes of others are read."""

    take: Callable[[bytes], object]
    refuses: type[Exception]
    """What it raises for what it does not take, and nothing else."""

    def knock(self, data: bytes) -> None:
        """Hand it something."""
        try:
            self.take(data)
        except self.refuses as error:
            if not str(error):
                raise RuntimeError("a refusal without a word") from error


def doors() -> Mapping[str, Door]:
    """Return them by name; the seeds of each stand in ``seeds/door-<name>``."""
    from tunnelmark.model.errors import (  # noqa: PLC0415 - Atheris must watch what is imported
        LabError,
        ResultError,
        StudyError,
    )

    return {
        "events": Door(_events, LabError),
        "journal": Door(_journal, LabError),
        "pcap": Door(_pcap, LabError),
        "records": Door(_records, ResultError),
        "result-block": Door(lambda data: _result("blocks/b1.json", data), ResultError),
        "result-manifest": Door(lambda data: _result("manifest.json", data), ResultError),
        "result-trials": Door(lambda data: _result("trials/b1.parquet", data), ResultError),
        "study": Door(_study, StudyError),
    }


def seeds(name: str) -> list[Path]:
    """Return what a door is known to take or to have stumbled over."""
    return sorted((SEEDS / f"door-{name}").iterdir())


def _study(data: bytes) -> object:
    from tunnelmark.study import parse_study  # noqa: PLC0415 - as above

    return parse_study(data.decode("utf-8", "replace"), "fuzzed.toml")


def _events(data: bytes) -> object:
    from tunnelmark.engine.events import parse_event  # noqa: PLC0415 - as above
    from tunnelmark.engine.summary import (  # noqa: PLC0415 - as above
        parse_link_direction,
        parse_reflect_summary,
        parse_send_summary,
    )
    from tunnelmark.model.errors import LabError  # noqa: PLC0415 - as above

    event = parse_event(data.decode("utf-8", "replace"))
    for parse in (
        parse_send_summary,
        parse_reflect_summary,
        lambda event: parse_link_direction(event, "a_to_b"),
    ):
        try:
            parse(event)
        except LabError:
            continue
    return event


def _records(data: bytes) -> object:
    from tunnelmark.engine.records import join, read_reflect, read_send  # noqa: PLC0415 - as above

    # Both files of a flow in one input: the first two bytes say how long the first is.
    cut = 2 + int.from_bytes(data[:2], "big")
    send = read_send(data[2:cut], "send")
    flow = join(send, read_reflect(data[cut:], "reflect"), 0)
    return flow.within(10**9).rtt_ns


def _pcap(data: bytes) -> object:
    from tunnelmark.probes.pcap import read_pcap  # noqa: PLC0415 - as above

    return read_pcap(data, max_packets=1000)


def _journal(data: bytes) -> object:
    from tunnelmark.hosts.ledger import read_journal  # noqa: PLC0415 - as above

    directory = _folder() / "tm00000"
    directory.mkdir(exist_ok=True)
    (directory / "journal.jsonl").write_bytes(data)
    return read_journal(directory)


def _result(name: str, data: bytes) -> object:
    """Read a result directory in which one file is what was handed over."""
    from tunnelmark.store import open_result  # noqa: PLC0415 - as above

    directory = _folder() / "result"
    if not directory.exists():
        shutil.copytree(_folder() / "good", directory)
    whole = (_folder() / "good" / name).read_bytes()
    (directory / name).write_bytes(data)
    try:
        return open_result(directory).trials()
    finally:
        (directory / name).write_bytes(whole)


def _folder() -> Path:
    """Return a folder with a result directory that is whole."""
    return Path(_made().name)


@cache
def _made() -> "tempfile.TemporaryDirectory[str]":
    # It goes with the process, or with scripts/fuzz.
    folder = tempfile.TemporaryDirectory(prefix="tm-doors-")
    good = Path(folder.name) / "good"
    for name, kind in (
        ("manifest.json", "manifest"),
        ("blocks/b1.json", "block"),
        ("trials/b1.parquet", "trials"),
    ):
        (good / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SEEDS / f"door-result-{kind}" / "good", good / name)
    return folder


def _fuzz(name: str, options: list[str]) -> None:
    import atheris  # noqa: PLC0415 - not where only the tests run

    with atheris.instrument_imports(include=["tunnelmark"]):
        door = doors()[name]
        door.knock(seeds(name)[0].read_bytes())
    atheris.Setup([sys.argv[0], *options], door.knock)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _fuzz(sys.argv[1], sys.argv[2:])
    else:
        print(*doors(), sep="\n")
