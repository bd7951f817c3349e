"""Which congestion control the loads of a trial have in virtual time: as in a lab; pure."""

import dataclasses

from tunnelmark.model.registry import make
from tunnelmark.model.trial import Background, DriverSpec
from tunnelmark.workloads.congestion import over_tcp, wanted_by
from tunnelmark.workloads.registry import workload_kinds


def agreed(spec: DriverSpec) -> DriverSpec:
    """Return a workload and its loads, with the congestion control that one of them names for all.

    They share the hosts of a lab, which have one at a time. Raises ``LabError`` where they name
    several.
    """
    if not spec.background:
        return spec
    all_of_it: list[DriverSpec | Background] = [spec, *spec.background]
    name = wanted_by([make(workload_kinds(), _of(one)) for one in all_of_it])
    if name is None:
        return spec
    return dataclasses.replace(
        spec,
        params=_named(spec, name),
        background=tuple(
            dataclasses.replace(one, params=_named(one, name)) for one in spec.background
        ),
    )


def _named(one: DriverSpec | Background, name: str) -> dict[str, object]:
    """Return its parameters, with the congestion control if it uses TCP."""
    named = over_tcp([make(workload_kinds(), _of(one))])
    return {**one.params, "congestion": name} if named else dict(one.params)


def _of(one: DriverSpec | Background) -> DriverSpec:
    return DriverSpec(one.kind, one.label, one.params)
