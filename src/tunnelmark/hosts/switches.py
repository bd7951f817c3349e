"""What runs may switch on for all programs of this computer; the last of them switches it off."""

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from tunnelmark.hosts import cpu_controller, tcp_allowed

SwitchKind = Literal["tcp_allowed", "cpu_controller"]


class Switch(Protocol):
    """Something that is on or off, by its name; a module for each kind."""

    def is_name(self, name: str) -> bool:
        """Say whether something can be called that: journals are untrusted."""

    def may(self, name: str) -> bool:
        """Say whether this process may switch it."""

    def is_on(self, name: str) -> bool:
        """Say whether it is on."""

    def on(self, name: str) -> bool:
        """Switch it on; return whether it is on."""

    def off(self, name: str) -> bool:
        """Switch it off, and nothing else; return whether it was on."""

    def reported(self, name: str) -> str:
        """Return the message after it was switched off."""


SWITCHES: Final[Mapping[str, Switch]] = {
    "tcp_allowed": tcp_allowed,
    "cpu_controller": cpu_controller,
}
