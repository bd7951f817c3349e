"""What the instrument spends awake, waiting for a point in time: none of the tunnel's cost."""

from collections import defaultdict

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session.evidence import LINK, MEASURING
from tunnelmark.probes.cpu import CpuUsage


class Awake:
    """Collects what the senders of one trial report; the link's counters cover the emulator."""

    def __init__(self) -> None:
        """Nothing has been reported yet."""
        self._senders_ns: dict[str, int] = defaultdict(int)

    def sender(self, host: str, ns: int) -> None:
        """Note what a sender on a host spent."""
        self._senders_ns[f"{MEASURING} {host}"] += ns

    def seconds(
        self, usage: CpuUsage, before: LinkCounters | None, after: LinkCounters | None
    ) -> float:
        """Return the CPU seconds, as far as they are of processes whose CPU time was read.

        Those of the senders alone without counters; a link that is no emulator waits for nothing.
        """
        spent_ns = dict(self._senders_ns)
        if before is not None and after is not None:
            spent_ns[LINK] = after.awake_ns - before.awake_ns
        return sum(
            min(ns / 1e9, usage.groups[group].run_s)
            for group, ns in spent_ns.items()
            if group in usage.groups
        )
