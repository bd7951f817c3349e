"""Where a command stands: run and doctor ask the same door."""

import os
from contextlib import nullcontext

import pytest

from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.local import LocalHost
from tunnelmark.lab import rootless
from tunnelmark.lab.placement import Placement, Wanted
from tunnelmark.model.errors import LabError


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Environments of what was run in the place of this process; its exit status was 7."""
    found: list[dict[str, str]] = []

    def supervise(_argv: object, environment: dict[str, str]) -> int:
        found.append(environment)
        return 7

    monkeypatch.setattr(rootless, "supervise", supervise)
    monkeypatch.delenv("TUNNELMARK_INSIDE_USER_NAMESPACE", raising=False)
    return found


@pytest.mark.parametrize(
    ("wanted", "uid", "refused", "again"),
    [
        ("auto", 0, None, False),
        ("auto", 1000, None, True),
        ("auto", 1000, "not allowed", False),
        ("local", 1000, None, True),
        ("endpoints", 1000, None, True),
        ("machine", 1000, None, False),
    ],
)
def test_the_command_runs_again_where_namespaces_are_needed_and_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
    executed: list[dict[str, str]],
    *,
    wanted: Wanted,
    uid: int,
    refused: str | None,
    again: bool,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(rootless, "cannot_run_rootless", lambda: refused)
    with pytest.raises(SystemExit, match="7") if again else nullcontext():
        rootless.stand(wanted)
    assert bool(executed) == again


def test_where_nothing_can_stand_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, executed: list[dict[str, str]]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(rootless, "cannot_run_rootless", lambda: "not allowed")
    with pytest.raises(LabError, match=r"not allowed; run it with sudo"):
        rootless.stand("local")
    assert executed == []


def test_a_folder_of_ledgers_that_was_chosen_stays(
    monkeypatch: pytest.MonkeyPatch, executed: list[dict[str, str]]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(rootless, "cannot_run_rootless", lambda: None)
    monkeypatch.setenv("TUNNELMARK_RUNTIME", "/srv/ledgers")
    with pytest.raises(SystemExit):
        rootless.stand("auto")
    assert executed[0]["TUNNELMARK_RUNTIME"] == "/srv/ledgers"
    monkeypatch.delenv("TUNNELMARK_RUNTIME")
    with pytest.raises(SystemExit):
        rootless.stand("auto")
    assert executed[1]["TUNNELMARK_RUNTIME"].endswith(f"tunnelmark-{os.getuid()}")


def test_a_tunnel_is_chosen_by_what_doctor_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("TUNNELMARK_RUNTIME", f"{tmp_path}/runtime")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(LocalHost, "has_kernel", lambda _self, feature: feature != "veth")
    with Ledger() as ledger, Placement(ledger, engine="", wanted="local") as placement:
        reason = placement.local_host()
        assert isinstance(reason, str)
        assert "no veth" in reason
        assert placement.choose("none", lambda _host: None) == reason
