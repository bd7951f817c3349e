"""How long the ends of a tunnel work on a packet, on the device of a study. Pure.

Three sources, the first that there is: a fit made on that device, a fit made on a host and scaled
by the rate of the tunnel's cipher, that cipher alone at the device's published rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tunnelmark.devices.ciphers import figure_of, rate_of
from tunnelmark.devices.profiles import Device, Figure
from tunnelmark.devices.registry import DEVICES, roles_of
from tunnelmark.model.costs import Basis, CipherRate, CostModel, EndCosts, Fitted, WorkCosts, choose
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.model.tunnel import Side
from tunnelmark.tunnels.base import Tunnel

_HOST: Final = DriverSpec("host", "host", {})
_NO_COSTS: Final = "no cost model, so CPU work takes no time in this simulation"
_PS_PER_BYTE: Final = 1e6
"""At 1,000,000 bytes/s."""


@dataclass(frozen=True)
class Work:
    """What both ends of a tunnel spend."""

    client: EndCosts | None = None
    """None: no time."""
    server: EndCosts | None = None
    model: CostModel | None = None
    """Whose program it is."""
    cores: Mapping[Side, int] = field(default_factory=lambda: MappingProxyType({}))
    """Of ends on a device: all tunnels there share them. Each other end has a CPU of its own."""
    basis: Basis | None = None
    """None: not on a device."""
    source: str = "none: CPU work takes no time"
    """Where the figures come from, for the environment and the version of the tunnel."""
    notes: tuple[str, ...] = ()
    """What a reader must know of it."""

    @property
    def takes_time(self) -> bool:
        """Whether any end spends any."""
        return any(self.ends.values())

    @property
    def ends(self) -> Mapping[Side, EndCosts | None]:
        """Return both by name."""
        return {"client": self.client, "server": self.server}


FREE: Final = Work()
"""Of no tunnel."""


def work_of(
    tunnel: Tunnel, spec: DriverSpec, device: DriverSpec, models: Sequence[CostModel]
) -> Work:
    """Return what a study's tunnel spends on its device.

    Raises ``RefusedError`` for a device of whose rate for the cipher nothing is known.
    """
    if spec.kind == BASELINE:
        return FREE
    profile = DEVICES[device.kind]
    fitted = choose(models, spec, device)
    if not profile.limited:
        return _on_host(fitted, tunnel.params.count)
    cores = dict.fromkeys(roles_of(device), profile.cores)
    on = _On(device.label, profile, cores, tunnel.params.count)
    if fitted is not None:
        note = f"CPU work as fitted on {device.label} itself ({fitted.describe()})"
        return on.work(
            Basis.FITTED, fitted, (fitted.client, fitted.server), fitted.describe(), note
        )
    cipher = tunnel.packet_cipher
    published = None if cipher is None else rate_of(profile, cipher)
    if cipher is None or published is None:
        known = "of its own cipher" if cipher is None else f"of {figure_of(cipher)}"
        raise RefusedError(
            f"no cost model of {spec.label} on it, and no published rate {known}, by which one "
            "could be made"
        )
    host = choose(models, spec, _HOST)
    rate = None if host is None else host.provenance.rate
    if host is not None and rate is not None and rate.cipher == figure_of(cipher):
        return on.scaled(host, rate, published)
    return on.cipher_alone(host, figure_of(cipher), published)


def scaled(costs: EndCosts, rate: CipherRate, device: Device, published: Figure) -> EndCosts:
    """Return what an end fitted on a host spends on a device of which a core is a share of ours.

    As in a lab (``tunnelmark.lab.calibrate``): a program of a device without instructions for
    ciphers runs plain code, unless that is slower here than the device, and gets the share of a
    core that makes its cipher as fast as the device's. What plain code takes longer is the
    cipher's.
    """
    here = _rate_here(rate, device, published)
    times = here / published.value
    slower_ps = _PS_PER_BYTE / here - _PS_PER_BYTE / rate.mbyte_s

    def on_device(work: WorkCosts) -> WorkCosts:
        return replace(
            work,
            packet_ns=_changed(work.packet_ns, 0.0, times),
            byte_ps=_changed(work.byte_ps, slower_ps, times),
        )

    return replace(
        costs,
        wrap=on_device(costs.wrap),
        unwrap=on_device(costs.unwrap),
        servers=min(costs.servers, device.cores),
    )


@dataclass(frozen=True)
class _On:
    """Tunnels on a limited device."""

    label: str
    device: Device
    cores: Mapping[Side, int]
    count: int

    def work(
        self,
        basis: Basis,
        model: CostModel | None,
        ends: tuple[EndCosts | None, EndCosts | None],
        source: str,
        note: str,
    ) -> Work:
        notes = [note]
        if self.count > 1:
            number = f"{self.device.cores} core{'s' * (self.device.cores != 1)}"
            notes.append(
                f"{self.count} tunnels share {number} of {self.label}, in the order in which "
                "packets come"
            )
        return Work(*ends, model, self.cores, basis, source, tuple(notes))

    def scaled(self, model: CostModel, rate: CipherRate, published: Figure) -> Work:
        here = _rate_here(rate, self.device, published)
        client, server = (
            scaled(end, rate, self.device, published) if name in self.cores else end
            for name, end in (("client", model.client), ("server", model.server))
        )
        how = (
            f"scaled to {self.label} by {rate.describe()}: {here:.6g} MB/s there"
            f"{' without cipher instructions' if here != rate.mbyte_s else ''}, "
            f"{_in_words(published)} on the device"
        )
        source = f"{model.describe()}, {how}"
        note = f"CPU work as fitted elsewhere, {source}"
        return self.work(Basis.SCALED, model, (client, server), source, note)

    def cipher_alone(self, model: CostModel | None, name: str, published: Figure) -> Work:
        byte_ps = _exactly(_PS_PER_BYTE / published.value)
        alone = WorkCosts(_exactly(0.0), byte_ps)
        end = EndCosts(alone, alone)
        client, server = (
            end if of in self.cores else other
            for of, other in (
                ("client", None if model is None else model.client),
                ("server", None if model is None else model.server),
            )
        )
        source = f"{name} alone, {_in_words(published)}"
        note = (
            f"work of the cipher alone on {self.label}, from the device's published rate ({name} "
            f"{_in_words(published)}); a real program takes longer"
        )
        if model is not None:
            note += f"; the fit of {model.provenance.result} has no rate to scale it by"
        if client is None or server is None:
            note += "; work at the other end takes no time"
        return self.work(Basis.CIPHER, model, (client, server), source, note)


def _on_host(fitted: CostModel | None, count: int) -> Work:
    if fitted is None:
        return Work(notes=(_NO_COSTS,))
    alone = f"{count} tunnels, each with a CPU of its own at both ends"
    return Work(
        fitted.client,
        fitted.server,
        fitted,
        source=fitted.describe(),
        notes=(alone,) if count > 1 else (),
    )


def _rate_here(rate: CipherRate, device: Device, published: Figure) -> float:
    plain = not device.aes_instructions and rate.plain_mbyte_s >= published.value
    return rate.plain_mbyte_s if plain else rate.mbyte_s


def _changed(one: Fitted, more: float, times: float) -> Fitted:
    low, estimate, high = (
        max(0.0, figure + more) * times for figure in (one.low, one.estimate, one.high)
    )
    return Fitted(estimate, low, high)


def _exactly(value: float) -> Fitted:
    return Fitted(value, value, value)


def _in_words(figure: Figure) -> str:
    return f"{figure.value:g} MB/s, {figure.source}{', an estimate' * figure.estimate}"
