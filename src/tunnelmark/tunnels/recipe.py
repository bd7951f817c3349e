"""A tunnel that a recipe describes (recipe_text.py): files, daemons, interfaces, proof."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Final, Literal, TypeVar

from pydantic import Field, model_validator

from tunnelmark.model.errors import RefusedError, StudyError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer, udp_layer
from tunnelmark.model.tunnel import (
    Endpoint,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels import recipe_text
from tunnelmark.tunnels.addressing import check_inner_mtu, inner_addresses, outer_version
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    configure,
    introduce,
    last_complaint,
    prove_path,
    rename,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.protocols import TCP, UDP
from tunnelmark.tunnels.recipe_fill import fill
from tunnelmark.tunnels.recipe_text import Recipe, params_of, parse_recipe
from tunnelmark.tunnels.recipe_values import SIDES, values_of
from tunnelmark.tunnels.support import wait_until

KIND: Final = "recipe"
"""Kind of a tunnel whose recipe a study brings along."""


class RecipeParams(TunnelParams):
    """A recipe as text, and what a study sets of it."""

    recipe: Annotated[str, Field(max_length=recipe_text.LARGEST_RECIPE_BYTES)] = Field(
        description="the recipe itself; a study names its file as the kind"
    )
    settings: Mapping[str, str | int] = Field({}, description="the recipe's own parameters")

    @model_validator(mode="after")
    def _settings_are_the_recipe_s(self) -> "RecipeParams":
        try:
            chosen(parse_recipe(self.recipe, "recipe"), self)
        except StudyError as error:
            raise ValueError(str(error)) from error
        return self


class RecipeTunnel(DaemonTunnel):
    """``count`` tunnels as a recipe says, each with ports, keys and folders of its own."""

    kind: ClassVar[str] = KIND
    title: ClassVar[str] = "Recipe"
    params_type: ClassVar[type[TunnelParams]] = RecipeParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the recipe and the parameters of the study."""
        self.params = params
        self.recipe = self._recipe()
        super().__init__(params)
        self._set = chosen(self.recipe, params)
        self._ends: list[tuple[Mapping[str, str], Sequence[Daemon]]] = []

    def _recipe(self) -> Recipe:
        if not isinstance(self.params, RecipeParams):
            raise TypeError("a recipe of a study needs its text")
        return parse_recipe(self.params.recipe, KIND)

    @property
    def modelled(self) -> bool:
        """Whether the recipe says what stands around each packet."""
        return bool(self.recipe.overhead) and super().modelled

    def _words(self) -> Mapping[str, str]:
        return {name: name for name in self.recipe.programs}

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need the programs of the recipe."""
        programs = {name: program.package for name, program in self.recipe.programs.items()}
        return Need(
            programs={**programs, "ip": "iproute2", "ss": "iproute2", "ping": "iputils-ping"},
            kernel=self.recipe.kernel,
            install={
                name: one.install for name, one in self.recipe.programs.items() if one.install
            },
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Write files, start daemons in their order, address the interfaces, send a packet."""
        mtu_bytes = self._mtu_bytes
        check_inner_mtu(self.recipe.title, self.params.inner, mtu_bytes)
        paths, negotiated = [], []
        for number in range(self.params.count):
            client, server = self._start(site, number)
            here, there = inner_addresses(site, number, self.params)
            configure(client, here=here, there=there, mtu_bytes=mtu_bytes)
            configure(server, here=there, there=here, mtu_bytes=mtu_bytes)
            if self.recipe.device == "tap":
                introduce(client, server, there)
                introduce(server, client, here)
            path = traffic_path(
                site, number, client, server, params=self.params, mtu_bytes=mtu_bytes
            )
            prove_path(site, path, client, server)
            paths.append(path)
            negotiated.append(self._agreed(number, site.client.host))
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=self._rule(),
            processes=self.processes(),
        )

    def forwarded(self) -> tuple[ServerPorts, ...] | None:
        """Return the port of each pair; of several, a recipe does not say which is the server's."""
        if len(self.recipe.ports) != 1:
            return None
        ((name, first),) = self.recipe.ports.items()
        wire = self.recipe.wire
        transports: tuple[tuple[Literal["udp", "tcp"], tuple[str, ...]], ...] = (
            ("udp", wire.udp),
            ("tcp", wire.tcp),
        )
        return tuple(
            ServerPorts(transport, first, self.params.count)
            for transport, names in transports
            if name in names
        )

    def carriers(self) -> tuple[ServerPorts, ...]:
        """Return the ports of each pair at which the recipe has TCP on the link."""
        ports, tcp = self.recipe.ports, self.recipe.wire.tcp
        return tuple(ServerPorts("tcp", ports[name], self.params.count) for name in tcp)

    def check_agreed(self) -> None:
        """Read the logs again for what the recipe wants agreed."""
        for number in range(len(self._ends) // 2):
            self._said(number, at_start=False)

    def down(self) -> None:
        """Stop all daemons, the last started first."""
        super().down()
        self._ends.clear()

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers that the recipe gives; raises ``RefusedError`` if it gives none."""
        if not self.recipe.overhead:
            return super().encapsulation(agreed)  # type: ignore[return-value]
        version, tcp = outer_version(self.params), bool(self.recipe.wire.tcp)
        layers = (
            ip_layer(version),
            tcp_layer() if tcp else udp_layer(),
            *(Layer(one.name, one.bytes, one.source) for one in self.recipe.overhead),
        )
        return Encapsulation(
            lambda _inner_bytes: layers,
            agreed.mtu_bytes,
            outer_ip=version,
            stream=tcp,
            shares=bool(self.recipe.wire.quic_least_bytes),
        )

    def default_mtu_bytes(self, link_mtu_bytes: int, implementation: str) -> int:  # noqa: ARG002 - the recipe knows it
        """Return what the study sets of the recipe, else the recipe's own."""
        return self._mtu_bytes

    @property
    def _mtu_bytes(self) -> int:
        mtu_bytes: int = getattr(self.params, "mtu_bytes", None) or self._set_mtu()
        return mtu_bytes

    def _set_mtu(self) -> int:
        return int(self._set.get("mtu_bytes", self.recipe.mtu_bytes))

    def _start(self, site: Site, number: int) -> tuple[Daemon, Daemon]:
        """Start all daemons of a tunnel; return those that have the interfaces."""
        values = values_of(
            self.recipe, site, self.params, number, settings=self._set, mtu_bytes=self._mtu_bytes
        )
        ends: dict[Side, Endpoint] = {"client": site.client, "server": site.server}
        for side, file in _by_side(self.recipe.file):
            path = PurePosixPath(values[side]["folder"]) / file.name
            ends[side].host.put(path, fill(file.text, values[side]).encode())
        started: list[tuple[Side, recipe_text.Daemon, Daemon]] = []
        for side, recipe in _by_side(self.recipe.daemon):
            one = self._spawn(recipe, side, ends[side], number, values[side])
            started.append((side, recipe, one))
            self._await_start(one, recipe, number)
        for _, recipe, one in started:
            if recipe.connected:
                self._await(one, recipe, "find its peer", recipe.connected)
        carrying: dict[Side, Daemon] = {}
        for side, recipe, one in started:
            if recipe.interface:
                rename(one, fill(recipe.interface, values[side]), limit_s=self.recipe.limit_s)
                carrying[side] = one
        for side in SIDES:
            daemons = [one for where, _, one in started if where == side]
            self._ends.append((values[side], daemons))
        return carrying["client"], carrying["server"]

    def _spawn(
        self,
        recipe: recipe_text.Daemon,
        side: Side,
        endpoint: Endpoint,
        number: int,
        values: Mapping[str, str],
    ) -> Daemon:
        program = recipe.command[0]
        process = endpoint.host.spawn(
            [program, *(fill(word, values) for word in recipe.command[1:])],
            name=unique_name(f"{PurePosixPath(program).name}-{side}-{number}"),
            env={name: fill(value, values) for name, value in recipe.env.items()},
            private_dirs=recipe.private_dirs,
        )
        daemon = Daemon(
            f"{program} {side} of tunnel {number}",
            endpoint,
            values["interface"],
            process,
            last_complaint,
        )
        self._daemons.append(daemon)
        return daemon

    def _await_start(self, daemon: Daemon, recipe: recipe_text.Daemon, number: int) -> None:
        if recipe.ready:
            self._await(daemon, recipe, "start", recipe.ready)
        if recipe.listens:
            self._await_port(daemon, self.recipe.ports[recipe.listens] + number)

    def _await(self, daemon: Daemon, recipe: recipe_text.Daemon, what: str, pattern: str) -> None:
        wait_for(
            [daemon],
            what,
            lambda log: _found(pattern, log) is not None,
            limit_s=float(self.recipe.limit_s),
            refused=lambda log: _found(recipe.refused, log) if recipe.refused else None,
        )

    def _await_port(self, daemon: Daemon, port: int) -> None:
        host, limit_s = daemon.endpoint.host, self.recipe.limit_s

        def listens() -> bool | None:
            if (status := daemon.process.poll()) is not None:
                raise TunnelError(
                    f"{daemon.place} on {host.name} ended with status {status} before it could "
                    f"listen on port {port}: {daemon.last_words()}"
                )
            return True if host.run(["ss", "-Hlntu", f"sport = :{port}"]).text().strip() else None

        wait_until(
            listens,
            limit_s=limit_s,
            late=lambda: (
                f"{daemon.place} on {host.name} does not listen on port {port} after {limit_s} s: "
                f"{daemon.last_words()}"
            ),
        )

    def _agreed(self, number: int, host: Host) -> Negotiated:
        values, _ = self._ends[2 * number]
        details = self._said(number, at_start=True)
        agreed = {f"agreed.{what}": said for what, said in details.items()}
        cipher = self.recipe.cipher and fill(self.recipe.cipher, {**values, **agreed})
        return Negotiated(
            cipher=cipher,
            version=", ".join(self._versions(host)),
            implementation=", ".join(self.recipe.programs),
            mtu_bytes=self._mtu_bytes,
            data_path=self.recipe.data_path,
            details=details,
        )

    def _versions(self, host: Host) -> list[str]:
        versions = []
        for name, program in self.recipe.programs.items():
            done = host.run([name, *program.version], check=False)
            said = done.text() + done.stderr.decode("utf-8", "replace")
            found = re.search(program.shows, said) if program.shows else None
            first = next((line.strip() for line in said.splitlines() if line.strip()), "")
            version = found.group(1) if found else "" if program.shows else first[:80]
            title = "" if name in version else f"{name} "
            versions.append(f"{title}{version or 'of unknown version'}")
        return versions

    def _said(self, number: int, *, at_start: bool) -> dict[str, str]:
        """Return what the logs say was agreed; raise if it is not what the study asks for."""
        details = {}
        for side, (values, daemons) in zip(SIDES, self._ends[2 * number :], strict=False):
            log = "\n".join(daemon.log() for daemon in daemons)
            for agreed in self.recipe.agreed:
                if agreed.side not in (side, "both"):
                    continue
                found = re.findall(agreed.log, log)
                wanted = None if agreed.must_be is None else fill(agreed.must_be, values)
                # What was said at the start may be too far back by now.
                said = found[-1] if found else None if at_start else wanted
                if wanted is not None and said != wanted:
                    raise RefusedError(
                        f"{daemons[0].place} on {side} runs with {agreed.what} {said!r}, the study "
                        f"asks for {wanted!r}"
                    )
                details[agreed.what] = said or "unknown"
        return details

    def _rule(self) -> WireRule:
        wire, numbers = self.recipe.wire, range(self.params.count)
        udp, tcp = (
            tuple(self.recipe.ports[name] + number for name in names for number in numbers)
            for names in (wire.udp, wire.tcp)
        )
        said = [
            f"{transport} to or from port {_shown(sorted(ports))}"
            for transport, ports in (("UDP", udp), ("TCP", tcp))
            if ports
        ]
        return WireRule(
            encrypted=wire.encrypted,
            describe=" or ".join(said),
            ip_protocols=(*((UDP,) if udp else ()), *((TCP,) if tcp else ())),
            udp_ports=udp,
            tcp_ports=tcp,
            ip_version=outer_version(self.params),
            least_carrier_bytes=wire.quic_least_bytes,
        )


def chosen(recipe: Recipe, params: TunnelParams) -> dict[str, str | int]:
    """Return the recipe's parameters as a study sets them; raises ``StudyError`` if it cannot."""
    if not isinstance(params, RecipeParams):
        return {name: getattr(params, name) for name in recipe.parameters}
    values = dict(params.settings)
    for name in ("inner", "outer"):
        if getattr(params, name) not in getattr(recipe, name):
            raise StudyError(f"{name} is {getattr(params, name)}, which the recipe cannot do")
    own = params_of(recipe)
    for name in values:
        if name not in (*recipe.parameters, "mtu_bytes"):
            raise StudyError(f"settings.{name} is not a parameter of the recipe")
    try:
        checked = own.model_validate(values)
    except ValueError as error:
        raise StudyError(f"settings are not those of the recipe: {error}") from error
    return {name: getattr(checked, name) for name in (*recipe.parameters, "mtu_bytes")}


def packaged() -> list[type[RecipeTunnel]]:
    """Return a driver for each recipe of this package, its kind the name of the file."""
    folder = files(__package__) / "recipes"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return [
        driver_of((folder / name).read_text(encoding="utf-8"), name.removesuffix(".toml"))
        for name in names
    ]


def driver_of(text: str, kind: str) -> type[RecipeTunnel]:
    """Return the driver that a recipe is, for studies to name by its kind."""
    recipe = parse_recipe(text, f"{kind}.toml")
    return type(
        f"{kind.title()}Tunnel",
        (RecipeTunnel,),
        {
            "__doc__": recipe.title,
            "__module__": __name__,
            "kind": kind,
            "title": recipe.title,
            "params_type": params_of(recipe),
            "deviations": recipe.deviations,
            "_recipe": lambda _self: recipe,
        },
    )


def _shown(ports: Sequence[int]) -> str:
    whole = ports[-1] - ports[0] == len(ports) - 1
    return shown_ports(ports) if whole else ", ".join(map(str, ports))


_T = TypeVar("_T", recipe_text.File, recipe_text.Daemon)


def _by_side(parts: Sequence[_T]) -> Iterator[tuple[Side, _T]]:
    """Return each part for each of its sides, the server first: a client finds it at once."""
    for part in parts:
        for side in reversed(SIDES):
            if part.side in (side, "both"):
                yield side, part


def _found(pattern: str, log: str) -> str | None:
    match = re.search(pattern, log, re.MULTILINE)
    return match.group(0)[:300] if match else None
