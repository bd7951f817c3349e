"""Renew the table of docs/metrics.md from the metrics: python scripts/metrics_page.py."""

import re
from pathlib import Path

from tunnelmark.model.metrics import METRICS, Metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = (
    "| column | title | unit | definition | source | compared as | smallest relevant difference |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


def main() -> None:
    """Write the page again; the text around the table stays."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    after = rest[rest.index("\n\n") :]
    rows = [
        f"| `{m.name}` | {m.title} | {m.unit} | {m.definition} | {_linked(m.source)} | "
        f"{'ratio' if m.scale == 'log' else 'difference'} | {_worth(m)} |"
        for m in METRICS.values()
    ]
    return before + HEAD + "\n".join(rows) + after


def _linked(source: str) -> str:
    """Return a source with a link where it is a page of ours."""
    return re.sub(r"docs/([a-z-]+\.md)", r"[\1](\1)", source)


def _worth(metric: Metric) -> str:
    """Return the smallest relevant difference as a reader wants it."""
    worth = metric.worth_telling
    if metric.scale == "log":
        return f"{100 * worth:g} %"
    if metric.unit == "ratio":
        return f"{100 * worth:g} points"
    return f"{worth / 1e6:g} ms" if metric.unit == "ns" else f"{worth:g}"


if __name__ == "__main__":
    main()
