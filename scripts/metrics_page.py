"""Renew the table of docs/metrics.md from the metrics: python scripts/metrics_page.py."""

from pathlib import Path

from tunnelmark.model.metrics import METRICS, Metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = (
    "| column | title | unit | definition | source | compared as | worth telling |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


def main() -> None:
    """Write the page anew; the text around the table stays."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    after = rest[rest.index("\n\n") :]
    rows = [
        f"| `{m.name}` | {m.title} | {m.unit} | {m.definition} | {m.source} | "
        f"{'ratio' if m.scale == 'log' else 'difference'} | {_worth(m)} |"
        for m in METRICS.values()
    ]
    PAGE.write_text(before + HEAD + "\n".join(rows) + after, encoding="utf-8")


def _worth(metric: Metric) -> str:
    """Return the smallest difference worth telling as a reader wants it."""
    worth = metric.worth_telling
    if metric.scale == "log":
        return f"{100 * worth:g} %"
    if metric.unit == "ratio":
        return f"{100 * worth:g} points"
    return f"{worth / 1e6:g} ms" if metric.unit == "ns" else f"{worth:g}"


if __name__ == "__main__":
    main()
