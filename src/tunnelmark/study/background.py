"""Background of a study: loads beside workloads, and which workload has which beside it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunnelmark.model.trial import Background, DriverSpec
from tunnelmark.study.drivers import Section
from tunnelmark.study.messages import shown
from tunnelmark.workloads.registry import workload_kinds

NONE: Final = "none"
"""What a workload writes that has nothing beside it."""
PATHS: Final = ("inside", "outside")
OWN_KEYS: Final = ("path",)
"""Keys of ``[[background]]`` that are not the driver's."""
WORKLOAD_KEYS: Final = ("background",)
"""Keys of ``[[workload]]`` that are not the driver's."""
_LABEL_CHARACTERS: Final = 64


def backgrounds(section: Section, tables: Any) -> tuple[Background, ...]:
    """Return the loads of a study; ``StudyError`` where one is wrong, varies or is called none."""
    found = []
    placed = section.placed(tables)
    for position, spec in placed:
        place = ("background", position)
        if sum(other == position for other, _ in placed) > 1:
            raise section.fail(
                place,
                "background has several values of a parameter: write a separate "
                "[[background]] for each, and let the workloads choose",
            )
        if spec.label == NONE:
            raise section.fail((*place, "label"), "background.label is 'none', which means no load")
        if not workload_kinds()[spec.kind].may_be_background:
            loads = [k for k, driver in workload_kinds().items() if driver.may_be_background]
            raise section.fail(
                (*place, "kind"),
                f"background.kind is {spec.kind}, must be a kind of load: {', '.join(loads)}",
            )
        path = tables[position].get("path", PATHS[0])
        if path not in PATHS:
            raise section.fail(
                (*place, "path"), f"background.path is {shown(path)}, must be inside or outside"
            )
        found.append(Background(spec.label, spec.kind, spec.params, path, spec.columns))
    return tuple(found)


def accompanied(
    section: Section,
    tables: Any,
    known: Sequence[Background],
) -> tuple[tuple[int, DriverSpec], ...]:
    """Return the workloads, once for each background, each with the number of its table.

    Without the key ``background`` a workload has all loads of the study beside it. Raises
    ``StudyError`` where one is the same as another, however it was written.
    """
    specs: dict[str, tuple[int, DriverSpec]] = {}
    for position, spec in section.placed(tables):
        for chosen, named in _choices(section, position, tables[position], known):
            if workload_kinds()[spec.kind].wants_background and not chosen:
                raise section.fail(
                    ("workload", position),
                    f"workload {spec.label} needs a background load: add a [[background]]",
                )
            words = " + ".join(one.label for one in chosen) or NONE
            one = dataclasses.replace(
                spec,
                label=f"{spec.label} + {words}"[:_LABEL_CHARACTERS] if named else spec.label,
                columns={**spec.columns, "background": words} if known else spec.columns,
                background=chosen,
            )
            if (same := specs.get(one.identity)) is not None:
                raise section.fail(
                    ("workload", position),
                    f"workload {one.label} repeats {same[1].label}, with {words} beside both",
                )
            specs[one.identity] = (position, one)
    return tuple(specs.values())


def _choices(
    section: Section, position: int, table: Mapping[str, Any], known: Sequence[Background]
) -> Iterator[tuple[tuple[Background, ...], bool]]:
    """Return each choice, and whether the label must distinguish it from others."""
    if "background" not in table:
        yield tuple(known), False
        return
    value = table["background"]
    names = value if isinstance(value, list) else [value]
    by_label = {one.label: one for one in known}
    place = ("workload", position, "background")
    if not names:
        raise section.fail(
            place, "workload.background is an empty list, must have at least one label"
        )
    for number, name in enumerate(names):
        if not isinstance(name, str) or name not in (NONE, *by_label):
            raise section.fail(
                place,
                f"workload.background is {shown(name)}, must be one of "
                f"{', '.join([NONE, *by_label])}",
            )
        if name in names[:number]:
            raise section.fail(place, f"workload.background has {shown(name)} more than once")
        yield (() if name == NONE else (by_label[name],)), len(names) > 1
