"""What a tunnel's work on a packet costs, as fitted to a measured run: the data of a simulation.

A file has one tunnel on one device, in TOML. ``parse_costs`` reads it, ``to_toml`` writes it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from tunnelmark.model import toml
from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import StudyError
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import CipherLibrary

FORMAT: Final = 1
BASIS: Final = "work on the device"
"""Name of the ``Basis`` among the details of a tunnel that was simulated."""
LARGEST_COSTS_BYTES: Final = 1 << 20
_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)
_MOST_SERVERS: Final = 1024
_LARGEST: Final[Mapping[str, float]] = {
    "packet_ns": 1e9,
    "byte_ps": 1e9,
    "scatter": 10.0,
    "most_waiting": 1e6,
}
"""What the engine takes; each is at least 0, and ``most_waiting`` at least 1."""


@with_config(_STRICT)
@dataclass(frozen=True)
class Fitted:
    """An estimate with its interval; all three are the same where nothing was estimated."""

    estimate: float
    low: float
    high: float


@with_config(_STRICT)
@dataclass(frozen=True)
class WorkCosts:
    """What an end spends on each packet of one way. Bytes are those of the packet inside."""

    packet_ns: Fitted
    byte_ps: Fitted
    scatter: Fitted | None = None
    """Standard deviation of the time over its mean; None: not known, taken for 0."""
    most_waiting: Fitted | None = None
    """Packets that wait before further ones are dropped; None: not known."""


@with_config(_STRICT)
@dataclass(frozen=True)
class EndCosts:
    """One end of the tunnel."""

    wrap: WorkCosts
    """From the packet inside to those on the link."""
    unwrap: WorkCosts
    servers: int = 1
    """Threads, each with a core of its own."""
    in_order: bool = True
    """Whether no packet leaves before one that came before it."""


@with_config(_STRICT)
@dataclass(frozen=True)
class CostedTunnel:
    """For which tunnels the figures hold."""

    kind: str
    implementation: str = ""
    """What did the work, as it said itself."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Columns of the tunnel that must be as here; it does not matter what else it has."""

    def holds_for(self, tunnel: DriverSpec) -> bool:
        """Say whether a study's tunnel is one of them."""
        return self.kind == tunnel.kind and all(
            name in tunnel.columns and tunnel.columns[name] == value
            for name, value in self.params.items()
        )


@with_config(_STRICT)
@dataclass(frozen=True)
class CostedDevice:
    """For which device the figures hold."""

    kind: str
    """Of the study's device; ``host`` is the machine as it is."""
    params: Mapping[str, object] = field(default_factory=dict)
    """As those of the tunnel."""

    def holds_for(self, device: DriverSpec) -> bool:
        """Say whether a study's device is it."""
        return self.kind == device.kind and all(
            name in device.columns and device.columns[name] == value
            for name, value in self.params.items()
        )


class Basis(StrEnum):
    """Where a tunnel's work on a device comes from."""

    FITTED = "fitted on this device"
    SCALED = "fitted on a host, scaled by the rate of the cipher"
    CIPHER = "the cipher alone"
    """A lower bound."""


@with_config(_STRICT)
@dataclass(frozen=True)
class CipherRate:
    """What a core of the machine does of the tunnel's cipher, in 1,000,000 bytes/s.

    By it a model is scaled to a device, of which the same figure is known.
    """

    cipher: str
    """As docs/devices.md names it."""
    mbyte_s: float
    """With all instructions that the machine has, as its tunnels run."""
    plain_mbyte_s: float
    """Without instructions for ciphers, as programs run on a device that has none."""
    library: CipherLibrary = "OpenSSL"
    """Whose code it is: that of the tunnel's program, of which there is a benchmark."""

    def describe(self) -> str:
        """Return the cipher, and the library if it is not the one that devices are measured by."""
        return self.cipher if self.library == "OpenSSL" else f"{self.cipher} of {self.library}"


@with_config(_STRICT)
@dataclass(frozen=True)
class Provenance:
    """Where the figures come from."""

    program: str
    """Name and version of the tunnel's program, for example ``OpenVPN 2.6.14``."""
    machine: str
    """Processor and kernel."""
    stratum: Stratum
    """Of the measured run."""
    measured: date
    result: str
    """Name of the result directory."""
    study: str
    trials: int
    """Valid trials that entered the fit."""
    fitted_by: str
    """Program and version that made the fit."""
    note: str = ""
    rate: CipherRate | None = None
    """None: not known, so that the figures hold for this machine only."""


@with_config(_STRICT)
@dataclass(frozen=True)
class CostModel:
    """The whole of a file."""

    tunnel: CostedTunnel
    device: CostedDevice
    provenance: Provenance
    client: EndCosts
    server: EndCosts

    def describe(self) -> str:
        """Return where the figures come from in one phrase."""
        origin = self.provenance
        return (
            f"{origin.program} on {origin.machine} ({origin.stratum}, {origin.measured}, "
            f"{origin.result}, {origin.trials} trials)"
        )


def parse_costs(text: str, place: str) -> CostModel:
    """Return what a file says; ``StudyError`` names the place, the value and the limit."""
    if len(text) > LARGEST_COSTS_BYTES:
        raise StudyError(f"{place}: has more than {LARGEST_COSTS_BYTES} bytes")
    try:
        document = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{place}: is not TOML: {error}") from error
    if (found := document.pop("format", None)) != FORMAT:
        raise StudyError(f"{place}: format is {found!r:.40}, must be {FORMAT}")
    try:
        costs = _MODEL.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise StudyError(f"{place}: {where[:200]}: {first['msg']}") from error
    for side, end in (("client", costs.client), ("server", costs.server)):
        _check_end(end, f"{place}: {side}")
    if costs.provenance.trials < 1:
        raise StudyError(
            f"{place}: provenance.trials is {costs.provenance.trials}, must be 1 or more"
        )
    rate = costs.provenance.rate
    for name in ("mbyte_s", "plain_mbyte_s") if rate is not None else ():
        if (value := getattr(rate, name)) <= 0:
            raise StudyError(f"{place}: provenance.rate.{name} is {value:g}, must be above 0")
    return costs


def to_toml(costs: CostModel) -> str:
    """Return the text of the file; ``parse_costs`` gives the same back."""
    document: Mapping[str, object] = _MODEL.dump_python(costs)
    lines = [f"format = {FORMAT}"]
    for name, table in document.items():
        _put(lines, (name,), table)
    return "\n".join(lines) + "\n"


def choose(models: Sequence[CostModel], tunnel: DriverSpec, device: DriverSpec) -> CostModel | None:
    """Return the first model that holds for a tunnel on a device, or None."""
    fitting = (
        one for one in models if one.tunnel.holds_for(tunnel) and one.device.holds_for(device)
    )
    return next(fitting, None)


def _check_end(end: EndCosts, place: str) -> None:
    if not 1 <= end.servers <= _MOST_SERVERS:
        raise StudyError(f"{place}.servers is {end.servers}, must be from 1 to {_MOST_SERVERS}")
    for way, work in (("wrap", end.wrap), ("unwrap", end.unwrap)):
        for name, largest in _LARGEST.items():
            figure: Fitted | None = getattr(work, name)
            if figure is None:
                continue
            least = 1.0 if name == "most_waiting" else 0.0
            here = f"{place}.{way}.{name}"
            if not least <= figure.estimate <= largest:
                raise StudyError(
                    f"{here}.estimate is {figure.estimate:g}, must be from {least:g} to {largest:g}"
                )
            if not figure.low <= figure.estimate <= figure.high:
                raise StudyError(
                    f"{here}: low is {figure.low:g}, estimate {figure.estimate:g}, high "
                    f"{figure.high:g}; must be in this order"
                )


def _put(lines: list[str], path: tuple[str, ...], table: object) -> None:
    """Add a table, its own values first, then the tables within."""
    if not isinstance(table, Mapping):
        raise TypeError(f"{'.'.join(path)} is not a table")
    inner = {name: value for name, value in table.items() if _is_table(name, value)}
    lines += ["", f"[{'.'.join(map(_key, path))}]"]
    for name, value in table.items():
        if name not in inner and value is not None:
            lines.append(f"{_key(name)} = {_value(value)}")
    for name, value in inner.items():
        _put(lines, (*path, name), value)


def _is_table(name: str, value: object) -> bool:
    return name in {"wrap", "unwrap"} and isinstance(value, Mapping)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _text(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        parts = [f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None]
        return "{ " + ", ".join(parts) + " }" if parts else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float):
        return repr(value)
    return _text(str(value))


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_MODEL: Final = TypeAdapter(CostModel)
