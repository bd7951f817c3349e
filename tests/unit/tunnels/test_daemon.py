"""Waiting for daemons by their logs."""

import re
from typing import Any

import pytest

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.daemon import Daemon, last_complaint, shown_ports, wait_for


@pytest.fixture
def one(site: Site) -> Any:
    process: Any = site.client.host.spawn(["tmd"], name="tmd-1")
    return Daemon("tmd client of tunnel 0", site.client, "tm0", process, last_complaint)


def test_what_is_reached_is_reached(one: Any) -> None:
    one.process.log = "Ready"
    wait_for([one], "start", lambda log: "Ready" in log, limit_s=0)


def test_an_end_a_refusal_and_a_delay_are_reported_with_the_last_words(one: Any) -> None:
    one.process.log = "cannot do it\nbye"
    with pytest.raises(
        TunnelError,
        match=r"^tmd client of tunnel 0 on client did not start within 0 s: cannot do it$",
    ):
        wait_for([one], "start", lambda _log: False, limit_s=0)
    with pytest.raises(TunnelError, match=r"on client could not start: no$"):
        wait_for([one], "start", lambda _log: True, limit_s=0, refused=lambda _log: "no")
    one.process.status = 3
    with pytest.raises(
        TunnelError, match=r"ended with status 3 before it could start: cannot do it$"
    ):
        wait_for([one], "start", lambda _log: True, limit_s=0)


def test_the_last_complaint_is_preferred_and_bounded() -> None:
    assert last_complaint("error one\nerror two\nbye") == "error two"
    assert last_complaint("hello\nbye\n\n") == "bye"
    assert last_complaint(" \n") == "nothing in its log"
    assert last_complaint("an error\nbad luck", noise=re.compile("^bad")) == "an error"
    assert len(last_complaint("error " + "x" * 10_000)) == 300


def test_ports_are_shown_as_one_or_from_to() -> None:
    assert shown_ports([655]) == "655"
    assert shown_ports([655, 656, 657]) == "655 to 657"
