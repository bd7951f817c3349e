"""A job: a block of a study as plain data, all that whoever carries it out needs to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from tunnelmark.model.errors import StudyError
from tunnelmark.model.rules import Limits, Precision, Probes, TopologyParams
from tunnelmark.model.trial import Block, DriverSpec

_LONGEST_JSON_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Aim:
    """One interval that is to be narrow enough."""

    metric: str
    half_width: float
    """In the metric's stored unit, or a share."""
    relative: bool
    of: Literal["difference", "figure"]
    """Of the paired difference from no tunnel, or of the point's figure by itself."""


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True)
class Job:
    """The block, its stop rule, and what holds for all its trials."""

    study: str
    """Name of the study."""
    scale: str
    study_sha256: str
    """Of the study's text."""
    seed: int
    """Of the study; every random stream is named and follows from it."""
    block: Block
    precision: Precision
    """Repeats, bring-ups, confidence, and how many invalid attempts are too many."""
    aims: Mapping[str, tuple[Aim, ...]]
    """What the stop rule watches, by point."""
    limits: Limits
    probes: Probes
    topology: TopologyParams
    expected_s: Mapping[str, float]
    """Seconds of traffic of a trial, by the label of its workload."""
    together: tuple[DriverSpec, ...] = ()
    """Tunnels that must be measured where this one is; none where each may be in its own place."""

    @property
    def job_id(self) -> str:
        """Name of the job, unique within its study: that of its block."""
        return self.block.block_id


def to_json(job: Job) -> bytes:
    """Return the job as JSON; quantities have their units."""
    return _JOB.dump_json(job)


def from_json(text: bytes) -> Job:
    """Return the job that ``to_json`` wrote; ``StudyError`` names what is wrong and where."""
    if len(text) > _LONGEST_JSON_BYTES:
        raise StudyError(f"job: has {len(text)} bytes, must be at most {_LONGEST_JSON_BYTES}")
    try:
        return _JOB.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise StudyError(f"job: {place[:200]}: {first['msg']}") from error


_JOB: Final = TypeAdapter(Job)
