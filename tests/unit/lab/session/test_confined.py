"""A device's CPU limit in namespaces holds programs: tunnels that work elsewhere are refused."""

from typing import Any

import pytest

from tunnelmark.lab.session.session import refuse_unlimited
from tunnelmark.model.errors import LabError
from tunnelmark.model.tunnel import DataPath, Negotiated


class Named:
    def __init__(self, **have: object) -> None:
        self.__dict__ |= have


def refuse(
    data_path: DataPath | None,
    *,
    kind: str = "x",
    limits: bool = True,
    limits_kernel: bool = False,
) -> None:
    # The words that each of them has today where it passed the check: no "kernel" in any.
    agreed = Negotiated("AES-256-GCM", "Program 1.0", "openvpn", 1400, data_path)
    block: Any = Named(tunnel=Named(kind=kind, label="the tunnel"), device=Named(label="pi-zero"))
    up: Any = Named(negotiated=(agreed,))
    place: Any = Named(limits={"client": 1} if limits else {}, limits_kernel=limits_kernel)
    refuse_unlimited(block, up, place)


@pytest.mark.parametrize(
    "data_path", [DataPath.KERNEL, DataPath.KERNEL_THREADS, DataPath.LINK, None]
)
def test_what_escapes_the_limit_is_refused_by_its_type(data_path: DataPath | None) -> None:
    with pytest.raises(LabError) as caught:
        refuse(data_path)
    assert str(caught.value) == (
        f"the tunnel on pi-zero: Program 1.0 does its work in the {data_path or 'kernel'} of this "
        "computer, which a CPU limit does not reach; choose an implementation in user space, or "
        "--place endpoints"
    )
    refuse(data_path, kind="none")
    refuse(data_path, limits=False)
    refuse(data_path, limits_kernel=True)


def test_what_the_limit_holds_is_taken() -> None:
    refuse(DataPath.USER_SPACE)
