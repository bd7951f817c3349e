"""Ports of workloads and of the loads beside them, however many tunnels there are."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.workloads.background import Load, context_of
from tunnelmark.workloads.base import FIRST_PORT, TrialContext, ports_of


@pytest.mark.parametrize("paths", [1, 8, 9, 20, 64])
def test_no_load_has_a_port_of_another(paths: int) -> None:
    nothing: Any = None
    path: Any = SimpleNamespace(name="0")
    context = TrialContext(
        client=nothing,
        server=nothing,
        paths=(path,) * paths,
        engine="",
        seed=1,
        samples_dir=None,
        sample_stem="t",
        progress=lambda _: None,
        cancelled=lambda: False,
    )
    loads = [Load("l", nothing, outside) for outside in (False, True, False)]
    first = [
        FIRST_PORT,
        *(
            context_of(context, load, number=number, run=0).first_port
            for number, load in enumerate(loads)
        ),
    ]
    # Both ways of a transfer have a port for each tunnel.
    assert all(after - before >= 2 * paths for before, after in pairwise(first))
    assert ports_of(1) == 16
