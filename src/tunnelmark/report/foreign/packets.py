"""The packets of a trial, from the record files of both ends."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tunnelmark.engine import records
from tunnelmark.engine.records import Flow, Table

_ENDS: Final = re.compile(r"(.+)\.send((?:\.rec)?)")


@dataclass(frozen=True)
class Sending:
    """What one end sent, and what came of it."""

    reverse: bool
    """Whether the server was the sender."""
    send: Table
    flows: tuple[Flow, ...]


def sendings(samples: Mapping[str, bytes]) -> tuple[Sending, ...]:
    """Return what the sample files of a trial say, what the client sent first.

    A sender without the file of its reflector knows only what the replies reported. Raises
    ``ResultError`` for a damaged file.
    """
    found = []
    for name in sorted(samples):
        if (match := _ENDS.fullmatch(name)) is None:
            continue
        other = match[1] + ".reflect" + match[2]
        send = records.read_send(samples[name], name)
        reflect = (
            records.read_reflect(samples[other], other)
            if other in samples
            else records.no_reflect()
        )
        numbers = sorted({int(number) for number in send["flow"]})
        flows = records.join_all(send, reflect, numbers)
        found.append(Sending(match[1].endswith(records.TURNED), send, flows))
    return tuple(sorted(found, key=lambda one: one.reverse))
