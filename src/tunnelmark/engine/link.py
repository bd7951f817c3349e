"""The link emulator's orders: the ``link`` part of ``docs/engine.md`` as frozen types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tunnelmark.engine.config import PROTOCOL


@dataclass(frozen=True)
class Queue:
    """Drop-tail queue in front of the serializer."""

    type: Literal["bytes", "packets"]
    limit: int


@dataclass(frozen=True)
class Loss:
    """Loss on the path, drawn for each frame after serialization."""

    type: Literal["none", "independent", "gilbert_elliott"] = "none"
    probability: float = 0.0
    good_to_bad: float = 0.0
    bad_to_good: float = 0.0
    loss_good: float = 0.0
    loss_bad: float = 0.0

    def to_json(self) -> dict[str, object]:
        """Return the engine's form, with the keys of this type only."""
        if self.type == "none":
            return {"type": "none"}
        if self.type == "independent":
            return {"type": "independent", "probability": self.probability}
        return {
            "type": "gilbert_elliott",
            "good_to_bad": self.good_to_bad,
            "bad_to_good": self.bad_to_good,
            "loss_good": self.loss_good,
            "loss_bad": self.loss_bad,
        }


@dataclass(frozen=True)
class DelayVariation:
    """Delay added to the propagation delay, drawn for each frame."""

    type: Literal["none", "uniform", "normal", "exponential"] = "none"
    value_ns: int = 0
    """Spread (uniform), sigma (normal) or mean (exponential)."""

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        key = {"uniform": "spread_ns", "normal": "sigma_ns", "exponential": "mean_ns"}.get(
            self.type
        )
        return {"type": self.type} if key is None else {"type": self.type, key: self.value_ns}


@dataclass(frozen=True)
class HoldBack:
    """Frames that arrive later than they would, so that others overtake them."""

    probability: float = 0.0
    extra_ns: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {"probability": self.probability, "extra_ns": self.extra_ns}


@dataclass(frozen=True)
class Change:
    """New values from a time on; None: as before."""

    at_ns: int
    rate_bit_s: int | None = None
    delay_ns: int | None = None
    loss: Loss | None = None

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {
            "at_ns": self.at_ns,
            "rate_bit_s": self.rate_bit_s,
            "delay_ns": self.delay_ns,
            "loss": None if self.loss is None else self.loss.to_json(),
        }


@dataclass(frozen=True)
class Trace:
    """Opportunities to send, in Mahimahi's format."""

    name: str
    """Of the file on the host of the emulator."""
    content: bytes


@dataclass(frozen=True)
class Direction:
    """One direction of a link."""

    rate_bit_s: int | None
    delay_ns: int
    queue: Queue
    frame_overhead_bytes: int = -14
    """-14: the rate counts IP packets; +24: Ethernet with FCS, preamble and inter-frame gap."""
    frame_min_bytes: int = 0
    loss: Loss = Loss()
    delay_variation: DelayVariation = DelayVariation()
    reorder: bool = False
    duplicate: float = 0.0
    corrupt: float = 0.0
    hold_back: HoldBack = HoldBack()
    changes: tuple[Change, ...] = ()
    trace: Trace | None = None
    """In place of a rate."""

    def to_json(self, files_dir: str) -> dict[str, object]:
        """Return the engine's form; the trace lies in ``files_dir``."""
        trace = None if self.trace is None else {"path": f"{files_dir}/{self.trace.name}"}
        return {
            "rate_bit_s": self.rate_bit_s,
            "trace": trace,
            "delay_ns": self.delay_ns,
            "queue": {"type": self.queue.type, "limit": self.queue.limit},
            "frame_overhead_bytes": self.frame_overhead_bytes,
            "frame_min_bytes": self.frame_min_bytes,
            "loss": self.loss.to_json(),
            "delay_variation": self.delay_variation.to_json(),
            "reorder": self.reorder,
            "duplicate": self.duplicate,
            "corrupt": self.corrupt,
            "hold_back": self.hold_back.to_json(),
            "changes": [change.to_json() for change in self.changes],
        }


class BaseSpec:
    """What both kinds of link have in common."""

    def to_json(
        self,
        *,
        a: str,
        b: str,
        parent_pid: int,
        realtime_priority: int | None,
        files_dir: str = ".",
        spin: bool = True,
    ) -> dict[str, object]:
        """Return the whole configuration for ``tunnelmark-engine link``."""
        return {
            "protocol": PROTOCOL,
            "parent_pid": parent_pid,
            "a": {"interface": a},
            "b": {"interface": b},
            **self._medium(files_dir),
            "realtime_priority": realtime_priority,
            "cpu": None,
            "spin": spin,
        }

    def _medium(self, files_dir: str) -> dict[str, object]:
        raise NotImplementedError


@dataclass(frozen=True)
class LinkSpec(BaseSpec):
    """Both directions: ``a`` is the client's side, so ``a_to_b`` is forward."""

    a_to_b: Direction
    b_to_a: Direction
    seed: int

    @property
    def files(self) -> dict[str, bytes]:
        """What must lie in ``files_dir`` on the emulator's host, by name."""
        traces = (self.a_to_b.trace, self.b_to_a.trace)
        return {trace.name: trace.content for trace in traces if trace is not None}

    @property
    def has_schedule(self) -> bool:
        """Whether the link changes with time, so that a trial begins it again."""
        ways = (self.a_to_b, self.b_to_a)
        return any(way.changes or way.trace is not None for way in ways)

    def _medium(self, files_dir: str) -> dict[str, object]:
        return {
            "a_to_b": self.a_to_b.to_json(files_dir),
            "b_to_a": self.b_to_a.to_json(files_dir),
            "seed": self.seed,
        }


@dataclass(frozen=True)
class SharedLinkSpec(BaseSpec):
    """A medium that both directions share, such as a WLAN; ``a`` is the client's side."""

    medium: Mapping[str, object]
    """The engine's form of it."""
    seed: int

    @property
    def files(self) -> dict[str, bytes]:
        """Nothing: the medium is all in the configuration."""
        return {}

    @property
    def has_schedule(self) -> bool:
        """A medium does not change with time."""
        return False

    def _medium(self, files_dir: str) -> dict[str, object]:  # noqa: ARG002 - as LinkSpec
        return {"medium": dict(self.medium), "seed": self.seed}


AnyLinkSpec = LinkSpec | SharedLinkSpec
"""What a link model may hand to the lab."""
