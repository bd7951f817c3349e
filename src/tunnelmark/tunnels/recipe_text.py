"""A tunnel as one TOML file: text to ``Recipe``, strict and bounded. Nothing is started here."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, create_model, model_validator

from tunnelmark.model import toml
from tunnelmark.model.errors import StudyError
from tunnelmark.model.overhead import IpName
from tunnelmark.model.params import Params
from tunnelmark.model.tunnel import DataPath, Side
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.recipe_fill import names_in
from tunnelmark.tunnels.tailored import FileName

LARGEST_RECIPE_BYTES: Final = 1 << 16
MOST_PORT: Final = 65535 - 64
"""Tunnel i uses a recipe's port plus i, and there are 64 at most."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Words = Annotated[str, Field(min_length=1, max_length=300)]
Port = Annotated[int, Field(ge=1, le=MOST_PORT)]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def _pattern_of_one(text: str) -> str:
    if re.compile(_pattern(text)).groups != 1:
        raise ValueError("must have one group in parentheses, around what is looked for")
    return text


def _template(text: str) -> str:
    for _ in names_in(text):
        pass
    return text


Pattern = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_pattern)]
PatternOfOne = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_pattern_of_one)]
Template = Annotated[str, Field(max_length=1000), AfterValidator(_template)]
LongTemplate = Annotated[str, Field(max_length=20_000), AfterValidator(_template)]


class Program(Params):
    """A program that the recipe starts."""

    package: Words
    """The Debian package, or another way to have it, for the message where it is missing."""
    version: tuple[Words, ...] = Field(("--version",), max_length=4)
    """What it is asked its version with."""
    install: Words | None = None
    """Where it is no Debian package: the command that installs it, for that message."""
    shows: PatternOfOne | None = None
    """Where its answer holds the version; without it, the first line that it writes."""


class Parameter(Params):
    """What a study may set beside what every tunnel has."""

    choices: tuple[Words, ...] | tuple[int, ...] = Field(min_length=1, max_length=32)
    """The first is taken where a study says nothing."""
    description: Words


class Key(Params):
    """A new secret for each tunnel of each run."""

    bytes: int | None = Field(None, ge=1, le=256)
    """Random bytes, written in hexadecimal digits."""
    command: tuple[Template, ...] | None = Field(None, min_length=1, max_length=16)
    """Or what a command writes; made on the server, or on each side."""
    reads: Pattern | None = None
    """Named groups are the key's parts: ``${key.NAME.GROUP}``."""
    each_side: bool = False
    """One for each side: ``${key.NAME.here.GROUP}``, ``${key.NAME.there.GROUP}``."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.bytes is None) == (self.command is None):
            raise ValueError("has either bytes or command")
        if (self.command is None) != (self.reads is None):
            raise ValueError("has reads if, and only if, it has a command")
        if self.reads is not None and not re.compile(self.reads).groupindex:
            raise ValueError("reads has no named group, such as (?P<secret>[0-9a-f]+)")
        return self

    def parts(self, name: str) -> Iterator[str]:
        """Return the names under which templates find it."""
        groups = re.compile(self.reads).groupindex if self.reads else [""]
        for group in groups:
            for side in (".here", ".there") if self.each_side else ("",):
                yield f"key.{name}{side}{'.' + group if group else ''}"


class File(Params):
    """A file that is written before anything is started, readable by its owner only."""

    name: FileName
    side: Side | Literal["both"] = "both"
    text: LongTemplate


_THERE: Final = ("/run", "/var/run", "/var/lib", "/etc")
"""Directories that every system has."""


class Daemon(Params):
    """A program that runs as long as the tunnel is up."""

    side: Side | Literal["both"]
    command: tuple[Template, ...] = Field(min_length=1, max_length=100)
    """Program and arguments; no shell reads them."""
    env: Mapping[str, Template] = Field({}, max_length=20)
    private_dirs: tuple[Annotated[str, Field(pattern=r"^/[A-Za-z0-9/._-]{1,100}$")], ...] = ()
    """Directories of which it sees a private copy: ``/run``, which is empty then."""
    interface: Template | None = None
    """Name under which it makes the tunnel's interface; renamed to ``${interface}``."""
    ready: Pattern | None = None
    """What its log says when the next daemon may be started."""
    listens: Name | None = None
    """Or the port, TCP or UDP, that it has open by then."""
    connected: Pattern | None = None
    """What its log says when it has found its peer."""
    refused: Pattern | None = None
    """What its log says when it never will."""

    @model_validator(mode="after")
    def _private(self) -> Self:
        """Allow what every system has, and what is in such a copy: nothing is made for good."""
        for number, path in enumerate(self.private_dirs):
            inside = any(path.startswith(f"{one}/") for one in self.private_dirs[:number])
            if ".." in path.split("/") or not (path in _THERE or inside):
                raise ValueError(
                    f"private_dirs has {path}, must be one of {', '.join(_THERE)} or, behind it, "
                    "a directory in it"
                )
        return self

    def templates(self) -> Iterator[tuple[str, str, bool]]:
        """Return (key, text, whether secrets may stand in it)."""
        for word in self.command:
            yield "command", word, False
        for variable, value in self.env.items():
            yield f"env.{variable}", value, True
        yield "interface", self.interface or "", False


class Agreed(Params):
    """Something that the programs say was agreed on: recorded, and held to the study."""

    what: Name
    side: Side | Literal["both"] = "both"
    log: PatternOfOne
    must_be: Template | None = None


class Wire(Params):
    """How every packet of the tunnel must look on the link: by one of its ports."""

    udp: tuple[Name, ...] = ()
    tcp: tuple[Name, ...] = ()
    encrypted: bool = True
    quic_least_bytes: int = Field(0, ge=0, le=200)
    """Of QUIC: the UDP payload of the shortest packet with a datagram; shorter ones acknowledge."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.udp or self.tcp):
            raise ValueError("has neither udp nor tcp ports")
        if self.quic_least_bytes and self.tcp:
            raise ValueError("has quic_least_bytes, so it must have udp ports only")
        return self


class OverheadLayer(Params):
    """Bytes around each inner packet, behind the outer IP and UDP or TCP headers."""

    name: Words
    bytes: int = Field(ge=0, le=1000)
    source: Words


class Recipe(Params):
    """A tunnel."""

    format: Literal[1]
    title: Annotated[str, Field(min_length=1, max_length=80)]
    data_path: DataPath
    mtu_bytes: int = Field(ge=576, le=65535)
    most_mtu_bytes: int = Field(65535, ge=576, le=65535)
    """What a study may set at most."""
    device: Literal["tun", "tap"] = "tun"
    inner: tuple[IpName, ...] = Field(("ipv4", "ipv6"), min_length=1)
    outer: tuple[IpName, ...] = Field(("ipv4",), min_length=1)
    kernel: tuple[Name, ...] = ("tun",)
    cipher: Template | None = None
    certificates: bool = False
    """Whether each side has ``ca.crt``, ``own.crt`` and ``own.key`` of an authority of the run."""
    limit_s: int = Field(30, ge=1, le=300)
    programs: Mapping[Annotated[str, Field(max_length=64)], Program] = Field(min_length=1)
    ports: Mapping[Name, Port] = {}
    parameters: Mapping[Name, Parameter] = {}
    key: Mapping[Name, Key] = {}
    file: tuple[File, ...] = Field((), max_length=50)
    daemon: tuple[Daemon, ...] = Field(min_length=1, max_length=16)
    agreed: tuple[Agreed, ...] = Field((), max_length=32)
    wire: Wire
    overhead: tuple[OverheadLayer, ...] = Field((), max_length=32)
    deviations: Mapping[str, Words] = Field({}, max_length=32)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Hold the parts to each other, so that nothing can be missing when it runs."""
        for name in self.parameters:
            if name in TunnelParams.model_fields or name == "mtu_bytes":
                raise ValueError(f"parameters.{name} is a key that every tunnel has")
        for position, one in enumerate(self.daemon):
            if one.command[0] not in self.programs:
                raise ValueError(
                    f"daemon.{position}.command begins with {one.command[0]!r}, must be one of "
                    f"programs: {', '.join(self.programs)}"
                )
        for side in ("client", "server"):
            makes = [one for one in self.daemon if one.interface and one.side in (side, "both")]
            if len(makes) != 1:
                raise ValueError(
                    f"{len(makes)} daemons of the {side} have an interface, must be one"
                )
        named = [("wire", port) for port in (*self.wire.udp, *self.wire.tcp)]
        named += [
            (f"daemon.{number}.listens", one.listens)
            for number, one in enumerate(self.daemon)
            if one.listens is not None
        ]
        for place, port in named:
            if port not in self.ports:
                raise ValueError(f"{place} has the port {port!r}, which is not in ports")
        if self.overhead and self.wire.udp and self.wire.tcp:
            raise ValueError("overhead is given, so wire must have ports of one kind only")
        self._names()
        return self

    @model_validator(mode="after")
    def _mtu_within(self) -> Self:
        most = self.most_mtu_bytes
        if self.mtu_bytes > most:
            raise ValueError(f"mtu_bytes is {self.mtu_bytes}, most_mtu_bytes is {most}")
        return self

    def _names(self) -> None:
        known = set(KNOWN) | {f"port.{name}" for name in self.ports}
        known |= {f"set.{name}" for name in self.parameters}
        known |= {f"program.{name}" for name in self.programs}
        known |= {"certificate.here", "certificate.there"} if self.certificates else set()
        keys = {part for name, key in self.key.items() for part in key.parts(name)}
        agreed = {f"agreed.{one.what}" for one in self.agreed}
        for place, text, secret in self._templates():
            for name in names_in(text):
                if name in keys and not secret:
                    raise ValueError(
                        f"{place} has the key ${{{name}}}, which everyone could read there; write "
                        "it into a file or an environment variable"
                    )
                named = known | keys | (agreed if place == "cipher" else set())
                if name not in named:
                    raise ValueError(f"{place} has ${{{name}}}; known: {', '.join(sorted(named))}")

    def _templates(self) -> Iterator[tuple[str, str, bool]]:
        """Return (place, text, whether secrets may stand in it)."""
        if self.cipher is not None:
            yield "cipher", self.cipher, False
        for name, key in self.key.items():
            for word in key.command or ():
                yield f"key.{name}.command", word, False
        for number, file in enumerate(self.file):
            yield f"file.{number}.text", file.text, True
        for number, daemon in enumerate(self.daemon):
            for part, text, secret in daemon.templates():
                yield f"daemon.{number}.{part}", text, secret
        for number, agreed in enumerate(self.agreed):
            yield f"agreed.{number}.must_be", agreed.must_be or "", False


KNOWN: Final = (
    *("number", "side", "mtu", "interface", "folder"),
    *(
        f"{where}.{whose}"
        for where in ("inner", "outer")
        for whose in ("here", "there", "client", "server")
    ),
)
"""Names that every template may use."""


def parse_recipe(text: str, source: str) -> Recipe:
    """Parse a recipe; raises ``StudyError`` with one line: file, key, value and limit."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST_RECIPE_BYTES:
        raise StudyError(f"{source}: has {size} bytes, must be at most {LARGEST_RECIPE_BYTES}")
    try:
        document = toml.loads(text)
        written = json.dumps(document, default=_no_date, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{source}: is not valid TOML for a recipe: {error}") from error
    try:
        return Recipe.model_validate_json(written, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        words = f"{place}: {message}" if place else message
        raise StudyError(f"{source}: {words}") from error


def params_of(recipe: Recipe) -> type[TunnelParams]:
    """Return the type of what a study can set with this recipe."""
    fields: dict[str, Any] = {
        name: (
            Literal[parameter.choices],
            Field(parameter.choices[0], description=parameter.description),
        )
        for name, parameter in recipe.parameters.items()
    }
    for name, inside in (("inner", recipe.inner), ("outer", recipe.outer)):
        words = str(TunnelParams.model_fields[name].description)
        fields[name] = (Literal[inside], Field(inside[0], description=words))
    most = recipe.most_mtu_bytes
    mtu = Field(recipe.mtu_bytes, ge=576, le=most, description="MTU of the inner interface")
    return create_model("Params", __base__=TunnelParams, **fields, mtu_bytes=(int, mtu))


def _no_date(value: object) -> object:
    raise ValueError(f"{value} is a date or a time, which no key of a recipe accepts")
