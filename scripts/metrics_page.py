"""Renew the table of docs/metrics.md from the metrics: python scripts/metrics_page.py."""

from pathlib import Path

from tunnelmark.model.metrics import METRICS

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = (
    "| column | title | unit | definition | source | compared as |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)


def main() -> None:
    """Write the page anew; the text around the table stays."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    after = rest[rest.index("\n\n") :]
    rows = [
        f"| `{m.name}` | {m.title} | {m.unit} | {m.definition} | {m.source} | "
        f"{'ratio' if m.scale == 'log' else 'difference'} |"
        for m in METRICS.values()
    ]
    PAGE.write_text(before + HEAD + "\n".join(rows) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
