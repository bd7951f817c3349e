"""A lab that goes down goes down whole."""

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import Joined
from tunnelmark.model.errors import LabFailedError
from tunnelmark.model.host import Completed
from tunnelmark.model.topology import Topology


class Host:
    """One that may not be able to end its programs."""

    unique = "tm0"

    def __init__(self, name: str, error: str = "") -> None:
        self.name, self.error = name, error
        self.removed = False

    def run(self, *_: object, **__: object) -> Completed:
        return Completed((), 0, b"", b"")

    def stop_all(self) -> None:
        if self.error:
            raise LabFailedError(self.error)

    def remove(self) -> None:
        self.removed = True
        self.stop_all()


def test_a_host_whose_programs_do_not_end_keeps_no_other_host_there() -> None:
    hosts = [Host("client", "openvpn: did not exit"), Host("server", "no response"), Host("link")]
    joined: Any = Joined(*hosts)  # type: ignore[arg-type]
    ledger: Any = SimpleNamespace(run_id="tm0")
    place: Any = SimpleNamespace(make=lambda *_, **__: joined)
    lab = Lab(ledger, Topology(1500), None, engine="", place=place)
    with pytest.raises(LabFailedError, match="openvpn: did not exit"):
        lab.down()
    assert [host.removed for host in hosts] == [True, True, True]
