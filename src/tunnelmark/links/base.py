"""What every link model is: parameters and the specification it hands to the engine."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from tunnelmark.engine.link import AnyLinkSpec
from tunnelmark.model.params import Params

DIGEST: Final = "_sha256"
"""End of the name of a column that says what the file in the column without it contains."""


class Link(ABC):
    """A driver: one file, one class, found by ``kind``; presets are parameters with a name."""

    kind: ClassVar[str]
    title: ClassVar[str]
    params_type: ClassVar[type[Params]]
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """Name to a table of parameters as a study file would write it."""

    def __init__(self, params: Params) -> None:
        """Take the parameters of the study."""
        self.params = params

    @property
    @abstractmethod
    def mtu_bytes(self) -> int:
        """MTU of the interfaces at both ends."""

    @abstractmethod
    def spec(self, seed: int) -> AnyLinkSpec | None:
        """Return what the engine's link emulator is to do; the seed feeds its named streams.

        None: nothing, the hosts are joined directly.
        """
