"""Two simulated radios on a medium of ours, one at each end of a site."""

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tunnelmark.engine.pump import EventPump
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Medium, SharedMedium, Site
from tunnelmark.tunnels.support import wait_until

MODULE: Final = "mac80211_hwsim"
_READY_LIMIT_S: Final = 20.0
_MOVE_LIMIT_S: Final = 10.0
_REALTIME_PRIORITY: Final = 20
_ADDRESS_START: Final = "02:74:6d:00"


def address(side: str, number: int) -> str:
    """Return the address of an interface: 02:74:6d:00:10:nn at the access point, :20:nn else."""
    return f"{_ADDRESS_START}:{'10' if side == 'server' else '20'}:{number:02x}"


class Radios:
    """The radios and the process that is their medium: they vanish with it."""

    def __init__(self, site: Site, shared: SharedMedium) -> None:
        """Nothing is made yet."""
        self._site = site
        self._shared = shared
        self._process: Process | None = None
        self._anchor: Process | None = None
        self._pump = EventPump()
        self.names = {side: f"{site.prefix}-{side[0]}" for side in ("server", "client")}
        """Names of the wireless devices."""

    def up(self) -> None:
        """Make both, at the server's end, and move one to the client's."""
        site = self._site
        self._check_one_kernel()
        # Without radios of its own: ours are made in the namespace and vanish with the medium.
        site.server.host.run(["modprobe", MODULE, "radios=0"])
        self._start_medium()
        self._move_client()

    def medium(self) -> Medium:
        """Return what stands in for the lab's link."""
        if self._process is None:
            raise TunnelError("the medium of the radios was not started")
        counters, begin = (partial(self._answer, name) for name in ("USR1", "USR2"))
        return Medium(self._process, counters, begin, self.problem, header_bytes=0)

    def problem(self, *, dying_limit_s: float = 0.0) -> str | None:
        """Return what is wrong with the medium, or None; wait so long for its end to be known."""
        if self._process is None:
            return None
        if dying_limit_s:
            with contextlib.suppress(TimeoutError):
                self._process.wait(dying_limit_s)
        if (status := self._process.poll()) is not None:
            return f"the medium of the radios ended: {self._words(status)}"
        last = self._pump.last or {}
        if unpriced := last.get("unpriced"):
            return (
                f"the radios sent {unpriced} frames at rates that the link's standard does not have"
            )
        if malformed := last.get("malformed"):
            return f"{malformed} messages of the kernel are malformed: {last.get('first_fault')}"
        return None

    def down(self) -> None:
        """End the medium, and with it the radios; idempotent."""
        for process in (self._process, self._anchor):
            if process is not None:
                process.stop()
        self._process = self._anchor = None

    def _check_one_kernel(self) -> None:
        site = self._site
        boots = {
            end.host.run(["cat", "/proc/sys/kernel/random/boot_id"]).text().strip()
            for end in (site.client, site.server)
        }
        if len(boots) != 1:
            raise RefusedError(
                "client and server are two machines, but simulated radios reach each other in one "
                "kernel only (run it with --place machine)"
            )

    def _start_medium(self) -> None:
        site = self._site
        config = {
            "protocol": 2,
            "parent_pid": site.owner_pid,
            "access_point": {"name": self.names["server"], "address": address("server", 0)},
            "client": {"name": self.names["client"], "address": address("client", 0)},
            "medium": dict(self._shared.config),
            "seed": self._shared.seed,
            "realtime_priority": _REALTIME_PRIORITY,
            "cpu": None,
            "spin": site.spin,
        }
        self._process = site.server.host.spawn(
            [site.engine, "wlan-medium", "-"],
            name=unique_name("wlan-medium"),
            stdin=json.dumps(config).encode(),
            lines=True,
        )
        self._pump.start(self._process)
        ready = self._pump.ready.wait(_READY_LIMIT_S)
        if not ready or self._pump.error or self._process.poll() is not None:
            raise TunnelError(f"the medium of the radios is not ready: {self._words(None)}")

    def _move_client(self) -> None:
        """Hand the client's radio over: iw knows a namespace by a process in it."""
        client, server = self._site.client.host, self._site.server.host
        anchor = client.spawn(["sleep", "infinity"], name=unique_name("wlan-anchor"))
        self._anchor = anchor
        namespace = client.run(["readlink", "/proc/self/ns/net"]).text().strip()

        def arrived() -> bool | None:
            seen = server.run(["readlink", f"/proc/{anchor.pid}/ns/net"], check=False)
            return True if seen.text().strip() == namespace else None

        wait_until(
            arrived,
            limit_s=_MOVE_LIMIT_S,
            late=lambda: f"process {anchor.pid} is not in the client's network namespace",
        )
        server.run(["iw", "phy", self.names["client"], "set", "netns", str(anchor.pid)])

    def _answer(self, asked: str) -> Mapping[str, Any] | None:
        process = self._process
        if process is None or process.poll() is not None:
            return None
        host = self._site.server.host
        kill = ["kill", f"-{asked}", str(process.pid)]
        return self._pump.ask(lambda: host.run(kill, check=False))

    def _words(self, status: int | None) -> str:
        tail = self._process.log_tail(1) if self._process is not None else ""
        return self._pump.error or tail or (f"exit status {status}" if status else "no event")
