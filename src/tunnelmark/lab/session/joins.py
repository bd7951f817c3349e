"""Clients of a gateway that leave and join again in a trial, each timed, while the others stay."""

import threading
from collections.abc import Callable
from dataclasses import replace

from tunnelmark.lab.session.set_ups import FIRST_ANSWER_S, SetUps, Timed
from tunnelmark.lab.session.stand import Stand
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.set_up import SetUp
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.model.tunnel import Milestone, Site
from tunnelmark.tunnels.support import first_through


class Joins(SetUps):
    """Clients of one trial's gateway; of the baseline, which has none, their first answers."""

    def __init__(self, stand: Stand, spec: DriverSpec) -> None:
        """Take what stands, whose tunnel ``spec`` describes, or the baseline beside it."""
        super().__init__(stand, spec)
        self._bare = spec.kind == BASELINE
        self._away: dict[int, str] = {}
        """Why a client is not in the tunnel."""
        self._lock = threading.Lock()

    def leave(self, number: int) -> None:
        """End a client of the tunnel; the gateway and the others stay."""
        if self._bare:
            return
        self._note(number, "it left")
        self.stand.tunnel.leave(self.stand.lab.site, number)
        self._follow()

    def join(self, number: int, limit_s: float) -> Callable[[], SetUp]:
        """Start a client that left; what is returned waits, on any thread, until it has joined.

        A client that does not join is a figure. Raises ``TunnelError`` and ``LabError`` where it
        does not start, and what is returned ``RefusedError`` where it is not what was asked for.
        """
        timed = Timed(limit_s)
        site = self._site(timed)
        if self._bare:
            wait = self._first_answer(site, number)
        else:
            wait = self.stand.tunnel.join(site, number)
            self._follow()
        return lambda: self._joined(number, timed, wait)

    def _joined(self, number: int, timed: Timed, wait: Callable[[], None]) -> SetUp:
        try:
            wait()
        except RefusedError:
            raise
        except TunnelError as error:
            self._note(number, str(error))
            return SetUp(None, None, None, str(error))
        self._note(number, None)
        return timed.set_up(None, None)

    def _first_answer(self, site: Site, number: int) -> Callable[[], None]:
        path = self.stand.base.up.paths[number]

        def wait() -> None:
            if words := first_through(site, path, limit_s=FIRST_ANSWER_S):
                raise TunnelError(words)

        site.reached(Milestone.DIALING)
        return wait

    def _note(self, number: int, reason: str | None) -> None:
        """Keep whether a client is away, and so whether the tunnel is whole."""
        with self._lock:
            if reason is None:
                self._away.pop(number, None)
            elif not self._bare:
                self._away[number] = f"client {number} is away: {reason}"
            self.lost = next(iter(self._away.values()), None)

    def _follow(self) -> None:
        """Have what stands name the processes that carry the tunnel now."""
        stand = self.stand
        up = replace(stand.own.up, processes=stand.tunnel.processes())
        self.stand = replace(stand, own=replace(stand.own, up=up))
