"""Evidence that a trial measured what it says (idea 4 of the design)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

INTERRUPTED: Final = "not_interrupted"
"""Name of the check that fails when the run was asked to end in mid-trial."""


@dataclass(frozen=True)
class Check:
    """One piece of evidence: what was looked at, what was seen, what the limit is."""

    name: str
    """Stable identifier, for example ``sender_lateness``."""
    ok: bool
    message: str
    """One sentence for the report, with the figure."""
    value: float | None = None
    limit: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Validity:
    """The verdict: a trial is valid when every check is."""

    checks: tuple[Check, ...]

    @property
    def valid(self) -> bool:
        """Whether every check passed; a trial without any evidence is not valid."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The messages of the checks that failed."""
        return tuple(check.message for check in self.checks if not check.ok)

    def plus(self, more: Iterable[Check]) -> "Validity":
        """Return the verdict with more evidence."""
        return Validity((*self.checks, *more))
