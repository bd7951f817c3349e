"""What dnsperf says, parsed strictly; pure."""

import re
from dataclasses import dataclass
from typing import Final

_ANSWER: Final = re.compile(
    rb"^> ([A-Z]{2,16}|RCODE\d{1,5}) \S{1,255} [A-Z0-9]{1,16} (\d{1,6}\.\d{1,9})$", re.MULTILINE
)
_SENT: Final = re.compile(rb"^ +Queries sent: +(\d{1,15})$", re.MULTILINE)
_COMPLETED: Final = re.compile(rb"^ +Queries completed: +(\d{1,15}) \(", re.MULTILINE)
_LOST: Final = re.compile(rb"^ +Queries lost: +(\d{1,15}) \(", re.MULTILINE)
_RUN: Final = re.compile(rb"^ +Run time \(s\): +(\d{1,9}\.\d{1,9})$", re.MULTILINE)
_TAIL_BYTES: Final = 8192


@dataclass(frozen=True)
class Account:
    """One client's account of its queries."""

    sent: int
    completed: int
    lost: int
    run_s: float
    latencies_s: tuple[float, ...]
    """Of every query that was answered, in order."""
    codes: frozenset[str]
    """Response codes that came, such as ``NOERROR``."""


def parse_account(data: bytes) -> Account:
    """Return the account; ``ValueError`` where statistics are missing or do not agree."""
    tail = data[-_TAIL_BYTES:]
    figures = []
    for name, pattern in (
        ("queries sent", _SENT),
        ("queries completed", _COMPLETED),
        ("queries lost", _LOST),
        ("run time", _RUN),
    ):
        match = pattern.search(tail)
        if match is None:
            raise ValueError(f"dnsperf did not report {name}")
        figures.append(match[1])
    sent, completed, lost = (int(figure) for figure in figures[:3])
    answers = [(match[1], match[2]) for match in _ANSWER.finditer(data)]
    if len(answers) != completed:
        raise ValueError(f"dnsperf reports {completed} answers and lists {len(answers)}")
    if completed + lost > sent:
        raise ValueError(f"dnsperf reports {completed} + {lost} outcomes of {sent} queries")
    return Account(
        sent,
        completed,
        lost,
        float(figures[3]),
        tuple(float(latency) for _, latency in answers),
        frozenset(code.decode() for code, _ in answers),
    )
