"""Which arrivals count in a block: by where its tunnel does its work."""

import pytest

from tunnelmark.lab.session.stand import receive_time
from tunnelmark.model.tunnel import DataPath, Negotiated, TunnelUp, WireRule

_WIRE = WireRule(encrypted=False, describe="any", ip_protocols=())


def up(*paths: DataPath | None) -> TunnelUp:
    negotiated = tuple(Negotiated(None, "x", "x", 1500, path) for path in paths)
    return TunnelUp((), negotiated, _WIRE)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([DataPath.KERNEL], "user"),
        ([DataPath.KERNEL_THREADS], "user"),
        ([DataPath.USER_SPACE], "kernel"),
        ([DataPath.LINK], "kernel"),
        ([None], "kernel"),
        ([], "kernel"),
        ([DataPath.USER_SPACE, DataPath.KERNEL], "user"),
    ],
)
def test_behind_a_kernel_tunnel_a_packet_has_arrived_when_the_program_has_it(
    paths: list[DataPath | None], expected: str
) -> None:
    assert receive_time(up(*paths)) == expected
