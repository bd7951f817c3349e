"""A result that is copied to an object store while it is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tunnelmark.model.errors import ResultError
from tunnelmark.run.events import BlockPhase, Event, Listener, RunStarted
from tunnelmark.store.remote import Sender, check, is_url

_FOLDER: Final = Path("results")


class Copies:
    """Sends what is finished each time that a job has ended, and the rest at the end of the run.

    Does nothing where results are for a folder of this computer.
    """

    def __init__(self, place: str, say: Callable[[str], None]) -> None:
        """``place``: a folder or URL; ``ResultError`` if there is no way to such a URL."""
        self._place = place if is_url(place) else ""
        self.folder = _FOLDER if self._place else Path(place)
        """Where the run writes its result."""
        self._say = say
        if self._place:
            check(place)
        self._sender: Sender | None = None
        self._failed = False

    def listening(self, listener: Listener) -> Listener:
        """Return a listener that passes events on, and sends between jobs."""

        def take(event: Event) -> None:
            listener(event)
            if isinstance(event, RunStarted) and self._place:
                self._sender = Sender(self._place, Path(event.directory))
            elif isinstance(event, BlockPhase) and event.phase in {"done", "failed"}:
                self._send()

        return take

    def _send(self) -> None:
        """Send; what fails is tried again when the next job has ended, and reported once."""
        if self._sender is None:
            return
        try:
            self._sender.send()
        except ResultError as error:
            if not self._failed:
                self._say(f"{error}; trying again later")
            self._failed = True

    def send_all(self) -> None:
        """Send the rest; ``ResultError`` if that fails: the result is here nevertheless."""
        if self._sender is None:
            return
        try:
            self._sender.send()
        except ResultError as error:
            raise ResultError(f"{error}; the result is in {self._sender.directory}") from error
        self._say(f"copied to {self._sender.place}")
