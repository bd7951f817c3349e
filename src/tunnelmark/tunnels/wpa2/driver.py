"""WLAN security: hostapd and wpa_supplicant on simulated radios, real encryption by mac80211.

The traffic is on air itself: the study's link, which must be a WLAN, is the medium between two
radios of the kernel (radios.py), and the baseline is an open network beside the
secured one, of the same two radios on the same medium.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.engine.link import AnyLinkSpec, SharedLinkSpec
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation
from tunnelmark.model.topology import Router
from tunnelmark.model.tunnel import (
    AirTap,
    DataPath,
    Negotiated,
    SharedMedium,
    Site,
    TrafficPath,
    TunnelUp,
)
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.support import (
    Watched,
    first_packet,
    first_problem,
    inner_interface,
    quieten,
    wait_until,
)
from tunnelmark.tunnels.wpa2 import says
from tunnelmark.tunnels.wpa2.agreed import air_cipher, disagreement
from tunnelmark.tunnels.wpa2.config import (
    MTU_MAX_BYTES,
    Bss,
    Radio,
    Security,
    hostapd_text,
    new_secret,
    radio_of,
    secured,
    supplicant_text,
    wire_rule,
)
from tunnelmark.tunnels.wpa2.overhead import frame_layers
from tunnelmark.tunnels.wpa2.radios import MODULE, Radios, address
from tunnelmark.tunnels.wpa2.rates import settled_rates

_START_LIMIT_S: Final = 30.0
_CONNECT_LIMIT_S: Final = 60.0
_FIRST_PACKET_LIMIT_S: Final = 15.0
_DYING_LIMIT_S: Final = 2.0
# The kernel takes the radios down before the process that made them counts as ended.
_MEDIUM_DYING_LIMIT_S: Final = 10.0
_LOG_LINES: Final = 200
_LETTER: Final = "a"


class Wpa2Params(TunnelParams):
    """What a study can set; standard, band, rates and thresholds are those of its link."""

    count: int = Field(1, ge=1, le=8, description="networks of the access point, a station in each")
    security: Security = Field("wpa2-ccmp", description="how the air is protected")
    outer: Literal["ipv4"] = Field(
        "ipv4", description="has no effect: frames on air have no outer IP header"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.security == "wep" and self.count > 1:
            # mac80211 would encrypt group frames of several networks under one key index
            raise ValueError(f"count is {self.count}, with WEP it must be 1")
        return self


@dataclass(frozen=True)
class _Link:
    """One network with its one station."""

    number: int
    bss: Bss
    station: str
    """The client's interface."""
    station_address: str


class Wpa2Tunnel(Tunnel):
    """``count`` networks of one access point, and an open one beside them as their baseline."""

    kind: ClassVar[str] = "wpa2"
    title: ClassVar[str] = "WLAN security"
    params_type: ClassVar[type[TunnelParams]] = Wpa2Params
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"hostapd": "hostapd", "wpa_supplicant": "wpa_supplicant"}
    )
    params: Wpa2Params
    # It is the link itself.
    routers: ClassVar[tuple[Router, ...]] = ("none",)
    is_link: ClassVar[bool] = True

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._radios: Radios | None = None
        self._hostapd: Process | None = None
        self._supplicant: Process | None = None
        self._links: list[_Link] = []
        self._site: Site | None = None

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need both daemons with their control programs, and simulated radios."""
        return Need(
            programs={
                "hostapd": "hostapd",
                "hostapd_cli": "hostapd",
                "wpa_supplicant": "wpasupplicant",
                "wpa_cli": "wpasupplicant",
                "iw": "iw",
                "ip": "iproute2",
                "ping": "iputils-ping",
                "modprobe": "kmod",
            },
            kernel=(MODULE,),
        )

    def unfit(self, link: AnyLinkSpec | None, mtu_bytes: int) -> str | None:
        """Return why real radios cannot be the link, or None."""
        medium = link.medium if isinstance(link, SharedLinkSpec) else None
        found = self._fitting(medium, mtu_bytes)
        return found if isinstance(found, str) else super().unfit(link, mtu_bytes)

    def bring_up(self, site: Site) -> TunnelUp:
        """Make the radios, the access point, the stations; compare what both sides say."""
        radio, shared = self._radio(site)
        self._site = site
        self._radios = Radios(site, shared)
        self._radios.up()
        self._links = self._plan(site)
        self._interfaces(site, radio)
        self._start_access_point(site, radio)
        self._start_stations(site, radio)
        for link in self._links:
            self._address(site, link)
        paths = [self._path(site, link) for link in self._links]
        negotiated = []
        for link, path in zip(self._links, paths, strict=True):
            self._first_packet(site, link, path)
            negotiated.append(self._agreed(site, radio, link, path))
        count = self.params.count
        processes = tuple(
            (end.host.name, process)
            for end, process in ((site.server, self._hostapd), (site.client, self._supplicant))
            if process is not None
        )
        return TunnelUp(
            paths=tuple(paths[:count]),
            negotiated=tuple(negotiated[:count]),
            wire=wire_rule(self.params.security),
            processes=processes,
            medium=self._radios.medium(),
            tap=self._tap(site, self._links[:count]),
            reference=TunnelUp(
                paths=tuple(paths[count:]),
                negotiated=tuple(negotiated[count:]),
                wire=wire_rule("open"),
                medium=self._radios.medium(),
                tap=self._tap(site, self._links[count:]),
            ),
        )

    def problem(self) -> str | None:
        """Return which daemon died, which station is no longer connected, what ails the medium."""
        site = self._site
        if site is None or self._radios is None:
            return None
        ends = [
            *(
                Watched(site.server.host, li.bss.interface, self._hostapd, _words)
                for li in self._links
            ),
            *(
                Watched(site.client.host, li.station, self._supplicant, _words)
                for li in self._links
            ),
        ]
        if problem := self._died(self._radios, ends):
            return problem
        for link in self._links:
            state = self._status(site, link).get("wpa_state")
            if state == "COMPLETED":
                continue
            # No answer at all is that of a daemon that is dying.
            if state is None and self._supplicant is not None:
                with contextlib.suppress(TimeoutError):
                    self._supplicant.wait(_DYING_LIMIT_S)
            return (
                self._died(self._radios, ends)
                or f"station {link.station} on client is not connected: wpa_state is "
                f"{state or 'unknown'}"
            )
        return None

    def _died(self, radios: Radios, ends: Sequence[Watched]) -> str | None:
        """Return which daemon, radio or medium is gone."""
        problem = first_problem(ends)
        daemons = (self._hostapd, self._supplicant)
        alive = all(one is None or one.poll() is None for one in daemons)
        # The radios vanish with the medium: its end is the reason then.
        limit_s = _MEDIUM_DYING_LIMIT_S if problem and alive else 0.0
        return radios.problem(dying_limit_s=limit_s) or problem

    def check_agreed(self) -> None:
        """Ask both sides again: a station that was sent away joins again.

        Rates are not asked: rate control may try others at any time.
        """
        if self._site is None:
            return
        radio, _ = self._radio(self._site)
        for link in self._links:
            self._hold(self._site, radio, link)

    def down(self) -> None:
        """Stop the stations, the access point and the medium; the radios go with it."""
        for process in (self._supplicant, self._hostapd):
            if process is not None:
                process.stop()
        self._supplicant = self._hostapd = None
        if self._radios is not None:
            self._radios.down()
        self._radios = self._site = None
        self._links = []

    @property
    def packet_cipher(self) -> str | None:
        """Of the frames of data, as wpa_supplicant names it."""
        return air_cipher(self.params.security)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the headers of a frame on air, from its MAC header to the FCS."""
        layers = frame_layers(self.params.security, qos=agreed.details.get("qos") == "yes")
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes, below_ip=True)

    def on_air(self, medium: Mapping[str, object]) -> Mapping[str, object]:
        """Return the medium with this security."""
        return secured(medium, self.params.security)

    def _radio(self, site: Site) -> tuple[Radio, SharedMedium]:
        shared = site.shared
        found = self._fitting(None if shared is None else shared.config, site.client.mtu_bytes)
        if shared is None or isinstance(found, str):
            raise RefusedError(str(found))
        return found, shared

    def _fitting(self, medium: Mapping[str, object] | None, mtu_bytes: int) -> Radio | str:
        """Return what the radios are set to, or why they cannot be the link."""
        if medium is None or medium.get("type") != "wlan":
            return (
                "wpa2 is on air itself, so the study's link must be of kind wlan, such as the "
                "preset wlan-80211g-54"
            )
        radio = radio_of(medium)
        if isinstance(radio, str):
            return f"real radios cannot be the link of the study: {radio}"
        if radio.ht and self.params.security in {"wep", "wpa2-tkip"}:
            # 12.6.3; mac80211 then turns 802.11n off without a word
            return f"security is {self.params.security}, which {radio.standard} excludes"
        if mtu_bytes > MTU_MAX_BYTES:
            return (
                f"the link's mtu is {mtu_bytes}, the kernel's simulated radios carry at most "
                f"{MTU_MAX_BYTES}"
            )
        return radio

    def _plan(self, site: Site) -> list[_Link]:
        """Lay out the networks of the study, and the open one behind them."""
        kinds: list[Security] = [self.params.security] * self.params.count + ["open"]
        return [
            _Link(
                number,
                Bss(
                    inner_interface(site, _LETTER, number, "server"),
                    address("server", number),
                    f"{site.prefix}-{number}",
                    security,
                    new_secret(security),
                ),
                inner_interface(site, _LETTER, number, "client"),
                address("client", number),
            )
            for number, security in enumerate(kinds)
        ]

    def _interfaces(self, site: Site, radio: Radio) -> None:
        """Make the stations, the first interface of the access point, and the one to listen at."""
        radios = self._radios
        if radios is None:
            return
        server, client = site.server.host, site.client.host
        made = [(server, radios.names["server"], self._links[0].bss.interface, "managed")]
        made += [(client, radios.names["client"], link.station, "managed") for link in self._links]
        made += [(client, radios.names["client"], self._tap_name(site), "monitor")]
        for host, phy, interface, kind in made:
            host.run(["iw", "phy", phy, "interface", "add", interface, "type", kind])
        for link in self._links:
            own = ("dev", link.station, "address", link.station_address)
            client.run(["ip", "link", "set", *own])
            client.run(["iw", "dev", link.station, "set", "power_save", "off"])
        if radio.rts_bytes is not None:
            words = ("set", "rts", str(radio.rts_bytes))
            client.run(["iw", "phy", radios.names["client"], *words])
        if radio.fragment_bytes is not None:
            words = ("set", "frag", str(radio.fragment_bytes))
            client.run(["iw", "phy", radios.names["client"], *words])

    def _start_access_point(self, site: Site, radio: Radio) -> None:
        host = site.server.host
        folder = host.work_dir / "wpa2"
        text = hostapd_text(
            radio, [link.bss for link in self._links], control=str(folder / "hostapd")
        )
        host.put(folder / "hostapd.conf", text.encode())
        process = host.spawn(["hostapd", str(folder / "hostapd.conf")], name=unique_name("hostapd"))
        self._hostapd = process

        def enabled() -> bool | None:
            if (status := process.poll()) is not None:
                raise TunnelError(
                    f"hostapd on server ended with status {status} at its start: {_words(process)}"
                )
            names = [link.bss.interface for link in self._links]
            lines = process.log_tail(_LOG_LINES)
            # Only the first of several networks says so itself.
            if f"{names[0]}: AP-ENABLED" not in lines:
                return None
            known = [self._asks(site, name, "status").get("state") for name in names[:1]]
            return True if known == ["ENABLED"] else None

        wait_until(
            enabled,
            limit_s=_START_LIMIT_S,
            poll_s=0.1,
            late=lambda: (
                f"hostapd on server has no access point after {_START_LIMIT_S:g} s: "
                f"{_words(process)}"
            ),
        )

    def _start_stations(self, site: Site, radio: Radio) -> None:
        host = site.client.host
        folder = host.work_dir / "wpa2"
        argv = ["wpa_supplicant"]
        for link in self._links:
            path = folder / f"{link.station}.conf"
            text = supplicant_text(radio, link.bss, control=str(folder / "supplicant"))
            host.put(path, text.encode())
            argv += [*(["-N"] if link.number else []), "-Dnl80211", f"-i{link.station}"]
            argv += [f"-c{path}"]
        process = host.spawn(argv, name=unique_name("wpa_supplicant"))
        self._supplicant = process

        def connected() -> bool | None:
            if (status := process.poll()) is not None:
                raise TunnelError(
                    f"wpa_supplicant on client ended with status {status} before it could "
                    f"connect: {_words(process)}"
                )
            states = [self._status(site, link).get("wpa_state") for link in self._links]
            return True if set(states) == {"COMPLETED"} else None

        wait_until(
            connected,
            limit_s=_CONNECT_LIMIT_S,
            poll_s=0.2,
            late=lambda: (
                f"not all stations on client are connected after {_CONNECT_LIMIT_S:g} s; last "
                f"words of wpa_supplicant: {_words(process)}; of hostapd: "
                f"{_words(self._hostapd) if self._hostapd else 'none'}"
            ),
        )
        if radio.ht:
            band = "5" if radio.band == "5 GHz" else "2.4"
            guard = f"{'sgi' if radio.short_guard else 'lgi'}-{band}"
            words = ("set", "bitrates", f"ht-mcs-{band}", str(radio.mcs), guard)
            for link in self._links:
                site.client.host.run(["iw", "dev", link.station, *words])
                site.server.host.run(["iw", "dev", link.bss.interface, *words])

    def _address(self, site: Site, link: _Link) -> None:
        v6 = self.params.inner == "ipv6"
        client, server = (site.inner_ipv6 if v6 else site.inner_ipv4)(link.number)
        prefix = "64" if v6 else "30"
        mtu = str(site.client.mtu_bytes)
        ends = (
            (site.client.host, link.station, client, server, link.bss.address),
            (site.server.host, link.bss.interface, server, client, link.station_address),
        )
        for host, interface, own, peer, peer_address in ends:
            quieten(host, interface)
            host.run(["ip", "link", "set", "dev", interface, "mtu", mtu, "up"])
            nodad = ["nodad"] if v6 else []
            host.run(["ip", "address", "add", f"{own}/{prefix}", "dev", interface, *nodad])
            words = ("lladdr", peer_address, "dev", interface, "nud", "permanent")
            host.run(["ip", "neighbour", "replace", peer, *words])

    def _path(self, site: Site, link: _Link) -> TrafficPath:
        inside = site.inner_ipv6 if self.params.inner == "ipv6" else site.inner_ipv4
        client, server = inside(link.number)
        count = self.params.count
        return TrafficPath(
            name=str(link.number % count if link.number < count else 0),
            client_address=client,
            server_address=server,
            client_interface=link.station,
            server_interface=link.bss.interface,
            mtu_bytes=site.client.mtu_bytes,
        )

    def _first_packet(self, site: Site, link: _Link, path: TrafficPath) -> None:
        words = first_packet(site.client.host, path, limit_s=_FIRST_PACKET_LIMIT_S)
        if words:
            raise TunnelError(
                f"no echo on air between {link.station} and {link.bss.interface} within "
                f"{_FIRST_PACKET_LIMIT_S:g} s, though both say that they are connected: {words}"
            )

    def _agreed(self, site: Site, radio: Radio, link: _Link, path: TrafficPath) -> Negotiated:
        """Return what both sides say; refuse what the study did not ask for."""
        client = self._hold(site, radio, link)
        cipher = client.get("pairwise_cipher")
        rates = settled_rates(radio, path, self._ends(site, link))
        versions = [
            says.program_version(_said(site.server.host, ["hostapd", "-v"])),
            says.program_version(_said(site.client.host, ["wpa_supplicant", "-v"])),
        ]
        return Negotiated(
            cipher=None if cipher == "NONE" else cipher,
            version=", ".join(versions),
            implementation="mac80211",
            mtu_bytes=path.mtu_bytes,
            data_path=DataPath.LINK,
            details={
                "security": link.bss.security,
                "key_management": str(client.get("key_mgmt")),
                "group_cipher": str(client.get("group_cipher")),
                "standard": radio.standard,
                "qos": "yes" if radio.wmm else "no",
                "frequency_mhz": str(radio.frequency_mhz),
                "width_mhz": str(radio.width_mhz),
                "rate_forward": str(rates["client"]),
                "rate_reverse": str(rates["server"]),
            },
        )

    def _hold(self, site: Site, radio: Radio, link: _Link) -> Mapping[str, str]:
        """Raise unless both sides say what the study asks for; return the client's words."""
        client, server = (
            self._status(site, link),
            self._asks(site, link.bss.interface, "sta", link.station_address),
        )
        channels = {
            side: says.channel(host.run(["iw", "dev", interface, "info"]).text())
            for side, (host, interface) in self._ends(site, link).items()
        }
        if problem := disagreement(link.bss.security, radio, client, server, channels):
            raise RefusedError(problem)
        return client

    def _ends(self, site: Site, link: _Link) -> Mapping[str, tuple[Host, str]]:
        return {
            "client": (site.client.host, link.station),
            "server": (site.server.host, link.bss.interface),
        }

    def _tap_name(self, site: Site) -> str:
        return f"{site.prefix}{_LETTER}m"

    def _tap(self, site: Site, links: list[_Link]) -> AirTap:
        return AirTap(self._tap_name(site), tuple(link.station_address for link in links))

    def _status(self, site: Site, link: _Link) -> Mapping[str, str]:
        folder = site.client.host.work_dir / "wpa2" / "supplicant"
        argv = ["wpa_cli", "-p", str(folder), "-i", link.station, "status"]
        return says.pairs(site.client.host.run(argv, check=False).text())

    def _asks(self, site: Site, interface: str, *words: str) -> Mapping[str, str]:
        folder = site.server.host.work_dir / "wpa2" / "hostapd"
        argv = ["hostapd_cli", "-p", str(folder), "-i", interface, *words]
        return says.pairs(site.server.host.run(argv, check=False).text())


def _said(host: Host, argv: list[str]) -> str:
    done = host.run(argv, check=False)
    return done.text() + done.stderr.decode("utf-8", "replace")


def _words(process: Process) -> str:
    """Return the last line of a daemon that says something of a failure, else its last line."""
    lines = [line.strip() for line in process.log_tail(_LOG_LINES).splitlines() if line.strip()]
    telling = ("fail", "error", "invalid", "unsupported", "not support", "could not", "unknown")
    reported = [line for line in lines if any(word in line.lower() for word in telling)]
    return (reported or lines or ["nothing in its log"])[-1]
