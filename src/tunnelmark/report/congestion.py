"""Which congestion control stands behind the figures of TCP, in words; pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from tunnelmark.analysis.strata import shown_name
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.tunnel import CARRIER_CONGESTION
from tunnelmark.store.values import parsed


def congestion_notes(trials: pl.DataFrame) -> list[str]:
    """Return a sentence for each way in which TCP ran; ``trials`` are those of a result."""
    loads: dict[tuple[str, bool], set[str]] = defaultdict(set)
    # Details are long, and those of most workloads have none.
    has = pl.col("details").str.contains('"congestion_control"', literal=True)
    rows = trials.filter((pl.col("path") == "total") & has).select("workload", "details")
    for workload, text in rows.unique().iter_rows():
        found: Any = parsed(text).get("congestion_control")
        if not isinstance(found, dict):
            continue
        names = {str(found[role]) for role in ("client", "server") if role in found}
        loads[" and ".join(sorted(names)), bool(found.get("chosen"))].add(workload)
    return [
        f"TCP of {', '.join(sorted(of))} used the congestion control {name}, "
        + ("as the study requires." if chosen else "the kernel's default (the study names none).")
        for (name, chosen), of in sorted(loads.items())
    ]


def carrier_notes(blocks: Iterable[BlockRecord]) -> list[str]:
    """Return a sentence where TCP carries the tunnels of a report in more than one way."""
    tunnels: dict[str, set[str]] = defaultdict(set)
    for block in blocks:
        for agreed in block.negotiated:
            if (name := agreed.details.get(CARRIER_CONGESTION)) is not None:
                tunnels[name].add(shown_name(block.tunnel, block))
    if len(tunnels) <= 1:
        return []
    ways = (f"{', '.join(sorted(of))} with {name}" for name, of in sorted(tunnels.items()))
    return [
        (
            "The congestion control of the TCP that carries a tunnel is not the same for all: "
            f"{'; '.join(ways)}. On a line with loss or a long queue this alone can make the "
            "difference (congestion of a [[tunnel]] sets it)."
        )
    ]
