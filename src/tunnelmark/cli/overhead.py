"""``tunnelmark overhead``."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

_EPILOG = """
\b
examples:
  tunnelmark overhead openvpn --payload 1000
  tunnelmark overhead wireguard --set implementation=wireguard-go --mtu 1492
"""


@click.command(epilog=_EPILOG)
@click.argument("tunnel")
@click.option("--payload", default=1000, show_default=True, help="UDP payload in bytes.")
@click.option("--mtu", default=1500, show_default=True, help="MTU of the link in bytes.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Tunnel parameter; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def overhead(
    *, tunnel: str, payload: int, mtu: int, settings: tuple[str, ...], as_json: bool
) -> None:
    """Print what a tunnel adds to a datagram, layer by layer.

    Nothing is measured: the figures are those of the tunnel's model.
    """
    from tunnelmark.cli.overhead_model import model  # noqa: PLC0415 - keeps --help quick

    wire, point, inner_mtu, mss = model(tunnel, payload, mtu, settings)
    if as_json:
        document: dict[str, Any] = {
            "tunnel": tunnel,
            "payload_bytes": payload,
            "outer_packet_bytes": wire.outer_packet_bytes,
            "overhead_bytes": wire.overhead_bytes,
            "layers": [vars(layer) for layer in wire.layers],
            "fragmentation_point_bytes": point,
            "inner_mtu_bytes": inner_mtu,
            "tcp_mss_bytes": mss,
        }
        click.echo(json.dumps(document))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("layer")
    table.add_column("bytes", justify="right")
    table.add_column("source")
    for layer in wire.layers:
        table.add_row(layer.name, str(layer.bytes), layer.source)
    table.add_row("payload", str(payload), "")
    console = Console()
    console.print(table)
    packets = " + ".join(map(str, wire.outer_packet_bytes))
    console.print(f"on the link: {packets} bytes, overhead {wire.overhead_bytes} bytes")
    console.print(f"largest payload in one packet: {point} bytes")
    console.print(f"recommended inner MTU: {inner_mtu} bytes, TCP MSS: {mss} bytes")
