"""Which system a virtual machine has: its Debian suite, and the kernel if that is a user's own."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

Suite = Literal["bookworm", "trixie", "trixie-backports", "forky"]
"""A release of Debian; with backports its kernel and its OpenVPN are those of the backports.

forky is Debian testing, which changes every day.
"""

SUITES: Final[tuple[Suite, ...]] = get_args(Suite)
DEFAULT_SUITE: Final[Suite] = "bookworm"
RELEASE_PATTERN: Final = r"^[0-9][A-Za-z0-9._+~-]{0,63}$"
"""A kernel's release, as ``uname -r`` prints it."""


@dataclass(frozen=True)
class MachineSystem:
    """The system of a run's machines."""

    suite: Suite | None = None
    """None: the default suite, and only for tunnels that need a machine."""
    kernel: str | None = None
    """Release of a user's own kernel; None: the suite's."""

    @property
    def is_named(self) -> bool:
        """Whether the study or its run asks for it: all tunnels then run in machines."""
        return self.suite is not None or self.kernel is not None

    @property
    def name(self) -> Suite:
        """The suite."""
        return self.suite or DEFAULT_SUITE

    def describe(self) -> str:
        """Return for example ``trixie`` or ``trixie with kernel 6.16.0``."""
        return self.name if self.kernel is None else f"{self.name} with kernel {self.kernel}"

    def options(self) -> str:
        """Return the options of ``tunnelmark vm build`` that build its image; none by default."""
        words = f" --suite {self.name}" if self.name != DEFAULT_SUITE else ""
        return words if self.kernel is None else f"{words} --kernel FILE --modules DIR"
