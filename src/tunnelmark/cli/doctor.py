"""``tunnelmark doctor``."""

import json

import click

_EPILOG = """
\b
examples:
  tunnelmark doctor
  tunnelmark doctor --json | jq .
"""
_MACHINE = 3


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(*, as_json: bool) -> int:
    """Say what this machine can run, what is missing, and what brings it."""
    from tunnelmark.hosts.ledger import Ledger  # noqa: PLC0415 - keeps --help quick
    from tunnelmark.hosts.local import LocalHost  # noqa: PLC0415 - likewise
    from tunnelmark.lab.doctor import examine  # noqa: PLC0415 - likewise
    from tunnelmark.tunnels.registry import tunnel_kinds  # noqa: PLC0415 - likewise

    findings = examine()
    with Ledger() as ledger:
        host = LocalHost(ledger)
        tunnels = {}
        for kind, driver in sorted(tunnel_kinds().items()):
            required = {"cipher": "AES-256-GCM"} if kind == "openvpn" else {}
            params = driver.params_type.model_validate(required)
            tunnels[kind] = driver(params).unavailable(host)
    if as_json:
        click.echo(
            json.dumps(
                {"machine": [vars(finding) for finding in findings], "tunnels": tunnels}, indent=2
            )
        )
    else:
        for finding in findings:
            mend = f" ({finding.mend})" if finding.mend else ""
            click.echo(f"{'ok' if finding.ok else '--'}  {finding.name:12} {finding.message}{mend}")
        click.echo("\ntunnels in network namespaces of this machine:")
        for kind, reason in tunnels.items():
            click.echo(f"{'--' if reason else 'ok'}  {kind:12} {reason or 'can run'}")
    blocking = [f for f in findings if not f.ok and f.name in {"privileges", "engine", "veth"}]
    return _MACHINE if blocking else 0
