"""What the classic publications have under which number, as data: one TOML file a study."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field

from tunnelmark.model.params import Params

Label = Literal["tunnel", "link", "device"]


class Column(Params):
    """What a column of a published table chooses: a label, or a parameter of the workload."""

    label: Label | None = None
    param: str | None = None
    names: Mapping[str, str | int | float] = Field({})
    """Printed text to ours; a text that is not in it stands as it is."""
    named: bool = False
    """It chooses nothing: it distinguishes numbers that were printed in several places."""

    def ours(self, printed: str) -> str:
        """Return what a printed text is called here."""
        return str(self.names.get(printed, printed))


class Drawn(Params):
    """How a table is drawn: over a parameter or a kind of label, a line for each label."""

    axis: str
    lines: Label


class Mean(Params):
    """Points over which a published number is the mean."""

    param: str
    of: Annotated[tuple[str | int | float, ...], Field(min_length=2)]
    """Values of this parameter of the workload, each a point; all must have been measured."""


class Table(Params):
    """Published numbers, and which measured figure stands beside each."""

    number: str
    title: str
    csv: str
    """Stem of a file of ``tunnelmark.published``."""
    values: Annotated[tuple[str, ...], Field(min_length=1)]
    """Columns with numbers; of several, and of several rows for one place, the mean counts."""
    only: Mapping[str, tuple[str, ...]] = Field({})
    """Rows that count: column to texts."""
    factor: float
    """Stored value of the metric = printed value times factor."""
    unit: str
    workload: str
    metric: str
    labels: Mapping[str, str] = Field({})
    """What the whole table is about."""
    params: Mapping[str, str | int | float] = Field({})
    choose: Mapping[str, Column] = Field({})
    """What the columns of the file that are not numbers choose."""
    draw: Drawn | None = None
    mean: Mean | None = None
    """Numbers that are a mean over several points, each weighted alike."""


class Headers(Params):
    """Published sizes of headers, and which headers of ours stand beside each."""

    number: str
    title: str
    csv: str
    value: str
    """Column with bytes."""
    attribute: str
    """Column that says which header a row is about."""
    layers: Mapping[str, Annotated[tuple[str, ...], Field(min_length=1)]]
    """Text of that column to names of layers, which are added up; rows of other texts are none."""
    choose: Mapping[str, Column]
    """Which tunnel and link the other columns choose, by label."""


class Figure(Params):
    """A figure of the original that was printed without numbers."""

    number: str
    title: str
    workload: str
    metric: str
    axis: str
    lines: Label = "tunnel"
    against: str | None = None
    """A second metric: the figure is a surface over ``axis`` and it."""
    params: Mapping[str, str | int | float] = Field({})
    labels: Mapping[str, str] = Field({})


class Difference(Params):
    """One thing that is different from the original."""

    what: str
    there: str
    here: str
    why: str


class Classic(Params):
    """One study."""

    source: str
    differs: tuple[Difference, ...]
    tables: tuple[Table, ...] = ()
    headers: tuple[Headers, ...] = ()
    figures: tuple[Figure, ...] = ()
    unjudged: Mapping[str, str] = Field({})
    """Claim to the reason why no run of this study can judge it."""
    simulated: Mapping[str, str] = Field({})
    """Claim to the reason why a simulation does not confirm it."""


@cache
def load_classic(study: str) -> Classic | None:
    """Return what is known of a study by its name; None if it is not a classic one."""
    if study not in names():
        return None
    text = files(__package__).joinpath(f"{study}.toml").read_text(encoding="utf-8")
    return Classic.model_validate(tomllib.loads(text))


def names() -> tuple[str, ...]:
    """Return the classic studies."""
    found = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(n.removesuffix(".toml") for n in found if n.endswith(".toml")))
