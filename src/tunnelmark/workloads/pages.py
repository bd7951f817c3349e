"""The objects of a page, what curl reported of loading them, and the figures of it; pure."""

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tunnelmark.workloads.corpus import File, corpus
from tunnelmark.workloads.curl import Transfer, parse_transfer, span_s
from tunnelmark.workloads.quantiles import needed

TAIL: Final = 95
"""The percentile that is reported of pages and of objects."""
_MARK: Final = re.compile(r"^(document|objects|done) (\d{1,6})$")


@dataclass(frozen=True)
class Page:
    """A page that was loaded to its end."""

    seconds: float
    """From the first attempt to connect to the last byte of the last object."""
    first_byte_s: float
    """Of the document."""
    objects_s: tuple[float, ...]
    payload_bytes: int


@lru_cache(maxsize=4)
def site(
    document_bytes: int, small: tuple[int, int], large: tuple[int, int], seed: int
) -> tuple[File, ...]:
    """Return the document, then the objects, each number and size: texts and pictures."""
    texts = b"".join(
        file.data for file in corpus("text", document_bytes + small[0] * small[1], seed)
    )
    pictures = b""
    if large[0]:
        pictures = b"".join(file.data for file in corpus("photo", large[0] * large[1], seed))
    files = [File("document", texts[:document_bytes])]
    rest = texts[document_bytes:]
    for name, (count, size), data in (("small", small, rest), ("large", large, pictures)):
        files += [
            File(f"{name}-{number:03}", data[number * size : (number + 1) * size])
            for number in range(count)
        ]
    return tuple(files)


def read_pages(lines: Sequence[str], trace: str, files: Sequence[File]) -> tuple[Page, ...]:
    """Return the pages that came to their end; ``ValueError`` for what is damaged or too short."""
    lengths = {file.name: len(file.data) for file in files}
    accounts = dict(_parts(lines))
    traces = {key: "\n".join(part) for key, part in _parts(trace.splitlines())}
    pages = []
    number = 1
    while ("done", number) in accounts:
        found = []
        seconds = 0.0
        for part in ("document", "objects"):
            found += [parse_transfer(line) for line in accounts.get((part, number), [])]
            spent = span_s(traces.get((part, number), ""))
            if spent is None:
                raise ValueError(f"curl reported no times of page {number}")
            seconds += spent
        pages.append(page_of(number, found, seconds, lengths))
        number += 1
    return tuple(pages)


def page_of(
    number: int, found: Sequence[Transfer], seconds: float, lengths: dict[str, int]
) -> Page:
    """Return a page of what curl reported of each object; ``ValueError`` for what is too short."""
    reported = {transfer.name: transfer for transfer in found}
    for name, length in lengths.items():
        one = reported.get(name)
        if one is None or not one.done or one.size_download != length:
            size = one.size_download if one is not None and one.done else 0
            raise ValueError(f"page {number}: {name} has {size} bytes of {length}")
    if seconds <= 0:
        raise ValueError(f"page {number}: curl reports {seconds:g} s")
    return Page(
        seconds,
        reported["document"].time_starttransfer,
        tuple(reported[name].time_total for name in lengths if name != "document"),
        sum(lengths.values()),
    )


def figures(paths: Sequence[Sequence[Page]]) -> dict[str, float | None]:
    """Return the metrics of some paths together: pages are pooled, rates add up."""
    pages = [page for found in paths for page in found]
    times = sorted(page.seconds for page in pages)
    objects = sorted(seconds for page in pages for seconds in page.objects_s)
    rates = [
        sum(page.payload_bytes for page in found) * 8 / sum(page.seconds for page in found)
        for found in paths
        if found
    ]
    return {
        "web_page_p50_ns": _ns(statistics.median(times)) if times else None,
        "web_page_p95_ns": _tail_ns(times),
        "web_page_max_ns": _ns(times[-1]) if times else None,
        "web_ttfb_p50_ns": _ns(statistics.median(p.first_byte_s for p in pages)) if pages else None,
        "web_object_p50_ns": _ns(statistics.median(objects)) if objects else None,
        "web_object_p95_ns": _tail_ns(objects),
        "web_goodput_bit_s": sum(rates) if rates else None,
    }


def page_details(pages: Sequence[Page]) -> list[dict[str, object]]:
    """Return the pages for the record of the trial."""
    return [{"seconds": page.seconds, "first_byte_s": page.first_byte_s} for page in pages]


def _parts(lines: Sequence[str]) -> Iterator[tuple[tuple[str, int], list[str]]]:
    """Yield what stands behind each mark up to the next one."""
    key: tuple[str, int] | None = None
    part: list[str] = []
    for line in lines:
        if match := _MARK.match(line):
            if key is not None:
                yield key, part
            key, part = (match[1], int(match[2])), []
        else:
            part.append(line)
    if key is not None:
        yield key, part


def _tail_ns(ordered: Sequence[float]) -> float | None:
    """Return the value that 95 % do not exceed; None where too few were seen for it."""
    if len(ordered) < needed(TAIL):
        return None
    return _ns(ordered[math.ceil(len(ordered) * TAIL / 100) - 1])


def _ns(seconds: float) -> float:
    return seconds * 1e9
