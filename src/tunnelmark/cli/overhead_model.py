"""The overhead model of a tunnel that is not up: what its parameters alone decide."""

from collections.abc import Sequence

import click
from pydantic import ValidationError

from tunnelmark.model.errors import StudyError
from tunnelmark.model.overhead import (
    IP_HEADER_BYTES,
    IP_VERSIONS,
    LARGEST_PAYLOAD_BYTES,
    TCP_HEADER_BYTES,
    Wire,
    best_inner_mtu,
    datagram,
    fragmentation_point,
)
from tunnelmark.tunnels.registry import tunnel_kinds

_SMALLEST_MTU = 576
_LARGEST_MTU = 65535


def model(
    tunnel: str, payload_bytes: int, mtu_bytes: int, settings: Sequence[str]
) -> tuple[Wire, int | None, int, int]:
    """Return (wire, fragmentation point, inner MTU, TCP MSS) of a tunnel by its parameters."""
    kinds = tunnel_kinds()
    if tunnel not in kinds:
        raise click.UsageError(f"TUNNEL is {tunnel!r}, must be one of {', '.join(sorted(kinds))}")
    if not 1 <= payload_bytes <= LARGEST_PAYLOAD_BYTES:
        raise click.UsageError(
            f"--payload is {payload_bytes}, must be 1 to {LARGEST_PAYLOAD_BYTES}"
        )
    if not _SMALLEST_MTU <= mtu_bytes <= _LARGEST_MTU:
        raise click.UsageError(f"--mtu is {mtu_bytes}, must be {_SMALLEST_MTU} to {_LARGEST_MTU}")
    values = dict(_pair(setting) for setting in settings)
    kind = kinds[tunnel]
    try:
        params = kind.params_type.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise StudyError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    driver = kind(params)
    agreed = driver.by_model(mtu_bytes)
    wrap = driver.encapsulation(agreed)
    inner_ip = IP_VERSIONS[params.inner]
    wire = datagram(payload_bytes, link_mtu_bytes=mtu_bytes, encapsulation=wrap, inner_ip=inner_ip)
    point = fragmentation_point(link_mtu_bytes=mtu_bytes, encapsulation=wrap, inner_ip=inner_ip)
    best = (
        mtu_bytes if wrap is None else best_inner_mtu(link_mtu_bytes=mtu_bytes, encapsulation=wrap)
    )
    return wire, point, best, best - IP_HEADER_BYTES[inner_ip] - TCP_HEADER_BYTES


def _pair(setting: str) -> tuple[str, str]:
    key, found, value = setting.partition("=")
    if not found:
        raise click.UsageError(f"--set is {setting!r}, must be KEY=VALUE")
    return key, value
