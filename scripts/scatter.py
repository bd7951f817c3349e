"""Writes ``src/tunnelmark/analysis/scatter.toml`` from results that were measured.

Usage: ``python scripts/scatter.py "where they were measured" RESULT …``. Of several results the
largest scatter of a metric counts.
"""

import sys
from pathlib import Path

from tunnelmark.analysis.power import Scatter, scatter_of
from tunnelmark.store import open_result

_PLACE = Path(__file__).parents[1] / "src/tunnelmark/analysis/scatter.toml"


def main() -> None:
    """Write the file."""
    source, *results = sys.argv[1:]
    found: dict[str, Scatter] = {}
    for place in results:
        for name, one in scatter_of(open_result(place).trials()).items():
            before = found.get(name, one)
            found[name] = Scatter(
                max(before.repeats, one.repeats), max(before.bring_ups, one.bring_ups)
            )
    if not found:
        sys.exit("no result was named, or none has what scatters: the file stays as it is")
    lines = [
        "# How much differences from no tunnel scatter: standard deviations, of the log of the",
        "# ratio or in the metric's stored unit. Written by scripts/scatter.py.",
        f'source = "{source}"',
        "",
        "[metrics]",
    ]
    lines += [
        f"{name} = {{ repeats = {one.repeats:.3g}, bring_ups = {one.bring_ups:.3g} }}"
        for name, one in found.items()
    ]
    _PLACE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
