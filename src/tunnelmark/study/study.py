"""A study in frozen form, as the parser leaves it."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from tunnelmark.model.hypothesis import Hypothesis
from tunnelmark.model.params import Params
from tunnelmark.model.rules import Limits, Precision, Probes, TopologyParams
from tunnelmark.model.suites import RELEASE_PATTERN, MachineSystem, Suite
from tunnelmark.model.trial import DriverSpec


class PlaceParams(Params):
    """Where the tunnels of a study are measured."""

    together: bool = Field(
        False,
        description="measure all tunnels where the most demanding one can run: in a "
        "virtual machine with a full kernel if any of them needs one; figures of an emulated "
        "and of a native CPU are never compared",
    )
    suite: Suite | None = Field(
        None,
        description="Debian release of the virtual machine, in which all tunnels of the study are "
        "then measured; trixie-backports is trixie with the kernel and the OpenVPN of its "
        "backports. Without it bookworm, for tunnels that need a machine",
    )
    kernel: Annotated[str, Field(pattern=RELEASE_PATTERN)] | None = Field(
        None,
        description="release (`uname -r`) of your own kernel for the virtual machine, which "
        "`tunnelmark vm build` built into an image of the same suite",
    )

    @property
    def system(self) -> MachineSystem:
        """What the virtual machines of the study have."""
        return MachineSystem(self.suite, self.kernel)


@dataclass(frozen=True)
class Study:
    """What is to be measured, and how well."""

    name: str
    title: str
    description: str
    seed: int
    precision: Precision
    limits: Limits
    tunnels: tuple[DriverSpec, ...]
    """Without the baseline, which is always added."""
    links: tuple[DriverSpec, ...]
    devices: tuple[DriverSpec, ...]
    workloads: tuple[DriverSpec, ...]
    """One for each combination of varied parameters, in the order of the file."""
    text: str
    """The file as it was read, kept in the manifest."""
    source: str
    """Where it came from, for messages."""
    scale: str = "full"
    """``smoke``, ``short`` or ``full``."""
    topology: TopologyParams = field(default_factory=TopologyParams)
    probes: Probes = field(default_factory=Probes)
    place: PlaceParams = field(default_factory=PlaceParams)
    hypotheses: tuple[Hypothesis, ...] = ()
    """What is claimed before the run."""
