"""IANA's numbers of the protocols that stand behind an IP header."""

from typing import Final

TCP: Final = 6
UDP: Final = 17
GRE: Final = 47
ESP: Final = 50
