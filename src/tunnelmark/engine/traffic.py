"""Schedules and sizes of a flow as the engine reads them (``docs/engine.md``, section send)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FixedGap:
    """Packet k is due at k times the gap."""

    gap_ns: int

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {"type": "fixed", "gap_ns": self.gap_ns}


@dataclass(frozen=True)
class PacketRate:
    """So many packets in a time; exact over any time."""

    packets: int
    per_ns: int = 10**9

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {"type": "packet_rate", "packets": self.packets, "per_ns": self.per_ns}


@dataclass(frozen=True)
class OnOff:
    """Bursts at a fixed gap and silences; lengths are uniform from the first to the second."""

    gap_ns: int
    on_ns: tuple[int, int]
    off_ns: tuple[int, int]

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {
            "type": "on_off",
            "gap_ns": self.gap_ns,
            "on_min_ns": self.on_ns[0],
            "on_max_ns": self.on_ns[1],
            "off_min_ns": self.off_ns[0],
            "off_max_ns": self.off_ns[1],
        }


Schedule = FixedGap | PacketRate | OnOff


@dataclass(frozen=True)
class FixedSize:
    """All payloads are as long."""

    payload_bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {"type": "fixed", "payload_bytes": self.payload_bytes}


@dataclass(frozen=True)
class UniformSize:
    """Each length from the first to the second is as likely."""

    min_bytes: int
    max_bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the engine's form."""
        return {"type": "uniform", "min_bytes": self.min_bytes, "max_bytes": self.max_bytes}


Size = FixedSize | UniformSize
