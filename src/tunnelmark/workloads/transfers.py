"""What clients reported of files they transferred, and the figures of it; pure."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from tunnelmark.workloads.corpus import File
from tunnelmark.workloads.curl import Transfer

_MOST_DETAILS: Final = 600
_CLOCKS: Final = re.compile(r"^(\d{10,20}) (\d{10,20})(?: ([A-Za-z0-9.-]{1,100}))?$")


@dataclass(frozen=True)
class OneFile:
    """A file that was transferred to its end."""

    name: str
    payload_bytes: int
    seconds: float | None
    """None where only the time of all files together is known."""
    first_byte_s: float | None = None
    """From the start, handshakes included, to the first byte of the answer."""
    connect_s: float | None = None
    """Until TCP, and TLS if any, was ready."""


@dataclass(frozen=True)
class Fetched:
    """What the client of one path reported."""

    path: str
    files: tuple[OneFile, ...]
    span_s: float | None
    """Time of all files; None if the client reported nothing."""

    @classmethod
    def by_curl(
        cls,
        path: str,
        transfers: Iterable[Transfer],
        lengths: Mapping[str, int],
        *,
        download: bool,
    ) -> Self:
        """Take curl's own times, one transfer after the other."""
        files = []
        for one in transfers:
            if not one.done:
                continue
            if one.name not in lengths:
                raise ValueError(f"curl reports a file that was not requested: {one.name[:80]!r}")
            size = one.size_download if download else one.size_upload
            files.append(
                OneFile(
                    one.name,
                    size,
                    one.time_total,
                    # The answer to an upload comes when it is over: no first byte to wait for.
                    one.time_starttransfer if download else None,
                    one.connect_s,
                )
            )
        return cls(path, tuple(files), sum(f.seconds or 0.0 for f in files) if files else None)

    @classmethod
    def by_clocks(cls, path: str, lines: Iterable[str], lengths: Mapping[str, int]) -> Self:
        """Take the times that were looked at before and after each program."""
        files = []
        begins, ends = [], []
        for line in lines:
            begin, end, name = _clock(line)
            if name not in lengths:
                raise ValueError(
                    f"the client reported a file that was not requested: {line[:80]!r}"
                )
            files.append(OneFile(name, lengths[name], (end - begin) / 1e9))
            begins.append(begin)
            ends.append(end)
        return cls(path, tuple(files), (max(ends) - min(begins)) / 1e9 if files else None)

    @classmethod
    def by_clock(cls, path: str, lines: Sequence[str], lengths: Mapping[str, int]) -> Self:
        """Take the time before and after one program that transferred all files."""
        if not lines:
            return cls(path, (), None)
        begin, end, _ = _clock(lines[0])
        return cls(
            path, tuple(OneFile(n, b, None) for n, b in lengths.items()), (end - begin) / 1e9
        )


def figures(
    fetched: Sequence[Fetched], files: Sequence[File], *, enough: bool
) -> dict[str, float | None]:
    """Return the metrics of some paths together; times of all files need all of them to be done.

    ``enough``: the load was ended when no more was wanted, which leaves rates but no total time.
    """
    done = [file for one in fetched for file in one.files]
    whole = all(len(one.files) == len(files) for one in fetched) and bool(fetched)
    spans = [one.span_s for one in fetched if one.span_s]
    timed = [(file, file.seconds) for file in done if file.seconds]
    moved = sum(file.payload_bytes for file in done)
    times = [seconds for _, seconds in timed]
    first = [file.first_byte_s for file, _ in timed if file.first_byte_s is not None]
    ready = [file.connect_s for file, _ in timed if file.connect_s is not None]
    return {
        "transfer_time_ns": _ns(max(spans)) if whole and spans else None,
        "transfer_goodput_bit_s": moved * 8 / max(spans) if (whole or enough) and spans else None,
        "transfer_file_p50_ns": _ns(statistics.median(times)) if times else None,
        "transfer_file_max_ns": _ns(max(times)) if times else None,
        "transfer_file_goodput_p50_bit_s": statistics.median(
            file.payload_bytes * 8 / seconds for file, seconds in timed
        )
        if timed
        else None,
        "transfer_ttfb_p50_ns": _ns(statistics.median(first)) if first else None,
        "transfer_ttfb_max_ns": _ns(max(first)) if first else None,
        "transfer_connect_p50_ns": _ns(statistics.median(ready)) if ready else None,
    }


def file_details(fetched: Fetched) -> dict[str, object]:
    """Return the files of a path for the record of the trial."""
    return {
        "path": fetched.path,
        "span_s": fetched.span_s,
        "files": [
            {
                "name": file.name,
                "bytes": file.payload_bytes,
                "seconds": file.seconds,
                "first_byte_s": file.first_byte_s,
                "connect_s": file.connect_s,
            }
            for file in fetched.files[:_MOST_DETAILS]
        ],
    }


def _clock(line: str) -> tuple[int, int, str]:
    match = _CLOCKS.match(line)
    if match is None:
        raise ValueError(f"the times of a transfer are damaged: {line[:80]!r}")
    begin, end = int(match[1]), int(match[2])
    if end <= begin:
        raise ValueError(f"the clock of the client went back during a transfer: {line[:80]!r}")
    return begin, end, match[3] or ""


def _ns(seconds: float) -> float:
    return seconds * 1e9
