"""``tunnelmark doctor``."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tunnelmark.model.suites import SUITES, MachineSystem, Suite

if TYPE_CHECKING:
    from tunnelmark.lab.ability import Ability
    from tunnelmark.lab.doctor import Finding

_EPILOG = """
\b
examples:
  tunnelmark doctor
  tunnelmark doctor --no-machine
  tunnelmark doctor --suite trixie     what runs in machines of Debian 13
  tunnelmark doctor --json | jq '.tunnels[] | select(.can_run | not)'

The exit status is 3 if no tunnel can run here at all.
"""
_NOTHING_RUNS = 3
_NOT_CHECKED = "not checked (--no-machine)"
_OF_MACHINES = "tunnels of a suite or of your own kernel run in virtual machines"


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--no-machine", is_flag=True, help="Do not boot a virtual machine to check.")
@click.option(
    "--suite", type=click.Choice(SUITES), help="Check in a machine of this Debian release."
)
@click.option("--kernel", metavar="RELEASE", help="Check in a machine with your own kernel.")
def doctor(*, as_json: bool, no_machine: bool, suite: Suite | None, kernel: str | None) -> int:
    """Show what can run here, what is missing and how to install it."""
    system = MachineSystem(suite, kernel)
    if no_machine and system.is_named:
        raise click.UsageError("--suite and --kernel are for virtual machines, not --no-machine")
    from tunnelmark.hosts.ledger import Ledger  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.lab.ability import abilities  # noqa: PLC0415 - likewise
    from tunnelmark.lab.doctor import examine  # noqa: PLC0415 - likewise
    from tunnelmark.lab.placement import Placement  # noqa: PLC0415 - likewise
    from tunnelmark.lab.rootless import stand  # noqa: PLC0415 - likewise
    from tunnelmark.tunnels.registry import tunnel_kinds  # noqa: PLC0415 - likewise

    # What can run is asked where a run would stand: without root, in a user namespace.
    stand("auto")
    findings = examine(system)
    no_engine = next((f for f in findings if not f.ok and f.name == "engine"), None)
    with (
        Ledger() as ledger,
        Placement(ledger, engine="", wanted="machine", system=system, say=_say) as placement,
    ):
        lacking = _sentence(no_engine) if no_engine else None
        local = lacking or (_OF_MACHINES if system.is_named else placement.local_host())
        machine = _NOT_CHECKED if no_machine else lacking or placement.ready_machine()
        found = abilities(tunnel_kinds(), local, machine)
    if as_json:
        _json(findings, found)
    elif system.is_named:
        _text_of_system(findings, found, system, machine if isinstance(machine, str) else None)
    else:
        _text(findings, found)
    return 0 if any(ability.can_run for ability in found) else _NOTHING_RUNS


def _say(step: str) -> None:
    click.echo(f"tunnelmark: {step}", err=True)


def _sentence(finding: "Finding") -> str:
    return f"{finding.message} ({finding.fix})" if finding.fix else finding.message


def _json(findings: "Sequence[Finding]", found: "Sequence[Ability]") -> None:
    tunnels = [{**asdict(ability), "can_run": ability.can_run} for ability in found]
    machine = [asdict(finding) for finding in findings]
    click.echo(json.dumps({"machine": machine, "tunnels": tunnels}, indent=2))


def _text_of_system(
    findings: "Sequence[Finding]",
    found: "Sequence[Ability]",
    system: MachineSystem,
    no_machine: str | None,
) -> None:
    """Show what runs in machines of a system; why there is none is said once for all tunnels."""
    _show(findings)
    if no_machine is not None:
        click.echo(f"\ntunnels were not checked: {no_machine}")
        return
    click.echo(f"\n{'tunnel':12} machine  why not")
    for ability in found:
        inside = "ok" if ability.machine is None else "--"
        click.echo(f"{ability.kind:12} {inside:8} {ability.machine or ''}".rstrip())
    click.echo(f"\na study of {system.describe()} has all its tunnels in virtual machines")


def _text(findings: "Sequence[Finding]", found: "Sequence[Ability]") -> None:
    _show(findings)
    click.echo(f"\n{'tunnel':12} here  machine  why not")
    for ability in found:
        here, inside = ("ok" if why is None else "--" for why in (ability.local, ability.machine))
        click.echo(f"{ability.kind:12} {here:5} {inside:8} {_why(ability)}".rstrip())
    if any(ability.local is not None and ability.machine is None for ability in found):
        click.echo("\ntunnelmark run uses a virtual machine for a tunnel that cannot run here")


def _show(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        click.echo(f"{'ok' if finding.ok else '--'}  {finding.name:12} {_sentence(finding)}")


def _why(ability: "Ability") -> str:
    """Return the reasons; nothing of a place that was not requested and is not needed."""
    if ability.local is None and ability.machine == _NOT_CHECKED:
        return ""
    named = (("here", ability.local), ("machine", ability.machine))
    return "; ".join(f"{place}: {reason}" for place, reason in named if reason is not None)
