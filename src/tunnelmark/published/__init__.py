"""What five classic publications printed, as data: one CSV file a table, values as printed."""

import csv
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Claim:
    """One statement of a publication."""

    claim_id: str
    study: str
    section: str
    claim: str
    quantity: str
    condition: str
    value: str
    """As printed: a number, a range such as ``2-3``, or empty."""
    unit: str


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of ``<name>.csv`` as printed, column name to text."""
    text = files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def claims() -> tuple[Claim, ...]:
    """Return every claim, in the order of the file."""
    return tuple(
        Claim(
            row["id"],
            row["study"],
            row["section"],
            row["claim"],
            row["quantity"],
            row["condition"],
            row["value"],
            row["unit"],
        )
        for row in table("claims")
    )
