"""``tunnelmark hosts``."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tunnelmark.hosts.inventory import Inventory, Role
    from tunnelmark.lab.ability import Ability
    from tunnelmark.lab.computers import Computers
    from tunnelmark.lab.doctor import Finding
    from tunnelmark.lab.hosts_check import LineReport
    from tunnelmark.lab.line_ends import Ends
    from tunnelmark.model.host import Host, Need
    from tunnelmark.model.tunnel import ServerPorts

_EPILOG = """
\b
examples:
  tunnelmark hosts check hosts.toml
  tunnelmark hosts check hosts.toml my-study.toml --install
  tunnelmark hosts check hosts.toml --json | jq .line

The exit status is 3 if anything is missing, refused or does not pass, even if
a run could still measure the rest.
"""
_CANNOT_SERVE = 3


@click.group(epilog="example: tunnelmark hosts check hosts.toml")
def hosts() -> None:
    """Check real hosts that are reached over SSH (docs/hosts.md)."""


@hosts.command(epilog=_EPILOG)
@click.argument("inventory", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("study", required=False)
@click.option("--install", is_flag=True, help="Install what is missing with the host's apt-get.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(*, inventory: Path, study: str | None, install: bool, as_json: bool) -> int:
    """Check the two hosts of INVENTORY and the line between them.

    Show what both hosts can run and what is missing; with STUDY, for that study only. Without
    --install nothing on the hosts is changed.
    """
    from tunnelmark.hosts.inventory import load_inventory  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.hosts.ledger import Ledger  # noqa: PLC0415 - likewise
    from tunnelmark.lab.computers import Computers  # noqa: PLC0415 - likewise

    found = load_inventory(inventory)
    with Ledger() as ledger, Computers(found, ledger) as computers:
        checked = _checked(found, computers, study, install=install)
    click.echo(json.dumps(checked.as_json(), indent=2) if as_json else checked.as_text())
    return 0 if checked.ok else _CANNOT_SERVE


@dataclass
class Checked:
    """All that was found, by host and of the line."""

    hosts: "dict[Role, list[Finding]]" = field(default_factory=dict)
    line: "LineReport | None" = None
    tunnels: "Sequence[Ability]" = ()

    @property
    def ok(self) -> bool:
        """Whether a study can run."""
        findings = [one for found in self.hosts.values() for one in found]
        return self.line is not None and all(one.ok for one in (*findings, *self.line.findings))

    def as_json(self) -> dict[str, object]:
        """Return it for programs; times in ns."""
        return {
            "ok": self.ok,
            "hosts": {role: [asdict(one) for one in found] for role, found in self.hosts.items()},
            "line": None if self.line is None else asdict(self.line),
            "tunnels": [
                {"kind": one.kind, "client": one.local, "server": one.machine}
                for one in self.tunnels
            ],
        }

    def as_text(self) -> str:
        """Return it for a reader."""
        lines = []
        for role, found in self.hosts.items():
            lines += [role, *map(_line, found), ""]
        if self.line is not None:
            lines += ["line", *map(_line, self.line.findings), ""]
        if self.tunnels:
            lines.append(f"{'tunnel':12} client  server  why not")
        for one in self.tunnels:
            ends = {"client": one.local, "server": one.machine}
            marks = [("ok" if why is None else "--") for why in ends.values()]
            reasons = dict.fromkeys(why for why in ends.values() if why is not None)
            row = f"{one.kind:12} {marks[0]:7} {marks[1]:7} {'; '.join(reasons)}"
            lines.append(row.rstrip())
        return "\n".join(lines).rstrip()


def _line(finding: "Finding") -> str:
    fix = f" ({finding.fix})" if finding.fix else ""
    return f"  {'ok' if finding.ok else '--'}  {finding.name:12} {finding.message}{fix}"


def _checked(
    inventory: "Inventory", computers: "Computers", study: str | None, *, install: bool
) -> Checked:
    from tunnelmark.hosts.inventory import ROLES  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.lab.ability import abilities  # noqa: PLC0415 - likewise
    from tunnelmark.lab.doctor import Finding  # noqa: PLC0415 - likewise
    from tunnelmark.lab.hosts_check import (  # noqa: PLC0415 - likewise
        LineReport,
        examine_host,
        examine_line,
        missing_packages,
    )
    from tunnelmark.lab.hosts_install import install as install_on  # noqa: PLC0415 - likewise
    from tunnelmark.lab.hosts_place import HostsPlace  # noqa: PLC0415 - likewise
    from tunnelmark.lab.line_ends import find_ends  # noqa: PLC0415 - likewise
    from tunnelmark.model.errors import LabError  # noqa: PLC0415 - likewise
    from tunnelmark.tunnels.registry import tunnel_kinds  # noqa: PLC0415 - likewise

    checked = Checked()
    connected = {}
    for role in ROLES:
        try:
            connected[role] = computers.one(role)
        except LabError as error:
            checked.hosts[role] = [Finding("ssh", ok=False, message=str(error))]
            continue
        needs = _needs(study, connected[role].host)
        packages = missing_packages(connected[role], needs) if install else []
        if packages:
            click.echo(f"tunnelmark: {role}: installing {' '.join(packages)}", err=True)
            install_on(connected[role].host, packages)
        entry = inventory.entry(role)
        checked.hosts[role] = examine_host(connected[role], entry, needs, inventory.ip)
    if len(connected) < len(ROLES):
        return checked
    if study is None:
        client, server = (connected[role].host for role in ROLES)
        checked.tunnels = abilities(tunnel_kinds(), client, server)
    try:
        ends = find_ends(connected, inventory)
        place = HostsPlace(connected, ends, computers.run_id, logs=computers.logs)
        ports, refused = _on_this_line(study, ends)
        found = examine_line(connected, inventory, place, ports)
        checked.line = replace(found, findings=(*found.findings, *refused))
    except LabError as error:
        checked.line = LineReport((Finding("line", ok=False, message=str(error)),))
    return checked


def _on_this_line(
    study: str | None, ends: "Ends"
) -> "tuple[tuple[ServerPorts, ...], list[Finding]]":
    """Return the ports that a study needs forwarded, and what of it cannot be on this line."""
    from tunnelmark.execute.hosts_limits import (  # noqa: PLC0415 - keeps --help quick
        drivers_of,
        forwarded,
        version_problem,
    )
    from tunnelmark.lab.doctor import Finding  # noqa: PLC0415 - likewise
    from tunnelmark.lab.hosts_nat import tunnel_problem, workload_problem  # noqa: PLC0415 - likewise
    from tunnelmark.model.registry import make  # noqa: PLC0415 - likewise
    from tunnelmark.study import load_study  # noqa: PLC0415 - likewise
    from tunnelmark.tunnels.registry import tunnel_kinds  # noqa: PLC0415 - likewise

    if study is None:
        return (), []
    loaded = load_study(study, on_line=True)
    said = {
        one.label: version_problem(one, ends["client"].ip)
        or tunnel_problem(make(tunnel_kinds(), one), ends)
        for one in loaded.tunnels
    }
    said |= {
        one.label: next(
            (why for own in drivers_of(one) if (why := workload_problem(own, ends))), None
        )
        for one in loaded.workloads
    }
    refused = [Finding(name, ok=False, message=why) for name, why in said.items() if why]
    return forwarded(loaded), refused


def _needs(study: str | None, host: "Host") -> "list[Need]":
    """Return what a study, or every lab, needs of a host."""
    from tunnelmark.execute.hosts_limits import drivers_of  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.lab.hosts_check import LAB_NEED  # noqa: PLC0415 - likewise
    from tunnelmark.model.registry import make  # noqa: PLC0415 - likewise
    from tunnelmark.study import load_study  # noqa: PLC0415 - likewise
    from tunnelmark.tunnels.registry import tunnel_kinds  # noqa: PLC0415 - likewise

    if study is None:
        return [LAB_NEED]
    loaded = load_study(study, on_line=True)
    tunnels = (make(tunnel_kinds(), spec).need(host) for spec in loaded.tunnels)
    workloads = (own.need() for spec in loaded.workloads for own in drivers_of(spec))
    return [LAB_NEED, *tunnels, *workloads]
