"""Gateways that need a full kernel, with three clients in the machine: traffic, wire, overhead."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext

import pytest

from places import FULL_KERNEL_GATEWAYS, Places, driven, interfaces
from small_study import LOOSE
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.foreign import foreign_check
from tunnelmark.lab.session.proving import proofs_after
from tunnelmark.lab.session.stand import Side, Stand, Task
from tunnelmark.lab.session.trial import run_trial
from tunnelmark.lab.session.warm import warm_up
from tunnelmark.model.block import ProofVerdict
from tunnelmark.model.overhead import IP_VERSIONS, datagram
from tunnelmark.model.registry import make
from tunnelmark.model.rules import Limits, Probes
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import DriverSpec, Point, Trial
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.workloads.registry import workload_kinds

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

CLIENTS = 3
WAY = Direction(rate_bit_s=50_000_000, delay_ns=2_000_000, queue=Queue("packets", 200))
LINK = LinkSpec(WAY, WAY, seed=1)
PAYLOAD_BYTES = 500
KERNEL: dict[str, object] = {"implementation": "kernel"}
Variant = tuple[str, dict[str, object], list[str], int]
# What runs at the server, and how many interfaces it has for its clients.
VARIANTS: list[Variant] = [
    ("wireguard", {**KERNEL, "psk": True, "shared": True}, [], 1),
    ("ipsec", {**KERNEL, "auth": "cert", "inner": "ipv6", "outer": "ipv6"}, ["charon"], 1),
    ("ipsec", {**KERNEL, "mode": "transport", "ike": "v1"}, ["charon"], 0),
    ("ikev2", KERNEL, ["charon"], 1),
    ("pptp", {}, ["pptpd"], 3),
    ("sstp", {}, ["sstp"], 3),
    ("l2tp_ipsec", {}, ["charon", "xl2tpd"], 3),
]
assert {kind for kind, *_ in VARIANTS} >= {*FULL_KERNEL_GATEWAYS}
# Whether the CPU time of its programs is the gateway's cost, as a trial of these shows.
TRIED = {"wireguard": False, "sstp": True}


def name_of(variant: Variant) -> str:
    kind, params = variant[:2]
    return " ".join([kind, *(f"{key}={value}" for key, value in params.items())])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_one_server_serves_every_client_and_the_wires_show_nothing_else(
    variant: Variant, stack: ExitStack, places: Places
) -> None:
    kind, params, programs, at_server = variant
    tunnel = driven(kind, {**params, "clients": CLIENTS})
    topology = Topology(clients=CLIENTS, shared=tunnel.params.shared)
    lab = places.lab(stack, places.machine(), LINK, topology=topology)
    stack.callback(tunnel.down)
    up = tunnel.up(lab.site)
    assert [path.name for path in up.paths] == ["0", "1", "2"]
    assert len({path.client_address for path in up.paths}) == CLIENTS
    assert len({path.server_address for path in up.paths}) == 1
    assert len(up.negotiated) == CLIENTS
    living = [process.name for process in lab.server_host.spawned if process.poll() is None]
    assert [name.partition("-")[0] for name in living] == programs
    wires = {f"eth{number}" for number in range(lab.wires)}
    assert len(interfaces(lab.server_host) - wires - {"lo"}) == at_server
    if kind in TRIED:
        check_trial(lab, tunnel, up, in_programs=TRIED[kind])
    else:
        check_traffic(lab, up)
    check_proofs(lab, tunnel, up)
    tunnel.check_agreed()
    assert tunnel.problem() is None
    tunnel.down()
    check_nothing_stays(lab, wires)


def check_traffic(lab: Lab, up: TunnelUp) -> None:
    """Packets of every client come back, and no link has carried anything but the tunnel's."""
    before = lab.counters()
    warm_up(up, lab, seed=1)
    (check,) = foreign_check(before, lab.counters(), [up.wire])
    assert check.ok, check.message


def check_trial(lab: Lab, tunnel: Tunnel, up: TunnelUp, *, in_programs: bool) -> None:
    """A trial has figures of each client, and of the gateway's CPU what can be known."""
    bare = driven("none", {"clients": CLIENTS, "shared": tunnel.params.shared})
    own, baseline = (Side(one, (), ()) for one in (up, bare.up(lab.site)))
    stand = Stand(lab, tunnel, own, baseline, Limits.model_validate(LOOSE), Probes(), None, None)
    load = {"payload_bytes": PAYLOAD_BYTES, "packet_rate": 50, "share": "each"}
    spec = DriverSpec("udp_load", "load", {**load, "direction": "both", "duration": "1 s"})
    other = DriverSpec("any", "any", {})
    point = Point("p", DriverSpec(tunnel.kind, tunnel.kind, {}), other, other, spec)
    task = Task(Trial("t", "b", point, 1, 1), 1, make(workload_kinds(), spec))
    result = run_trial(stand, stand.own, task, Quiet())
    assert [check for check in result.validity.checks if not check.ok] == []
    figures = {one.path: one.metrics for one in result.measurements}
    assert sorted(figures) == ["0", "1", "2", "total"]
    for client in ("0", "1", "2"):
        # 50 packets a second of 4000 bit each way.
        assert figures[client]["goodput_bit_s"] == pytest.approx(0.2e6, rel=0.25)
        assert figures[client]["loss_forward_ratio"] == 0
        assert figures[client]["loss_reverse_ratio"] == 0
        assert (figures[client]["owd_forward_p50_ns"] or 0) >= WAY.delay_ns
    check_cost(figures["total"], in_programs=in_programs)


def check_cost(total: Mapping[str, float | None], *, in_programs: bool) -> None:
    assert total["paths_fairness_ratio"] == pytest.approx(1, abs=0.01)
    assert (total["cpu_machine_cost_s_per_mpkt"] or 0) > 0
    whole, thread = (total.get(f"cpu_gateway_{name}ratio") for name in ("", "thread_max_"))
    if in_programs:
        assert 0 < (thread or 0) <= (whole or 0) < (total["cpu_tunnel_ratio"] or 0)
    else:
        # Whose the kernel's time is, nobody knows: that is no 0.
        assert whole is thread is total["cpu_tunnel_ratio"] is None


def check_proofs(lab: Lab, tunnel: Tunnel, up: TunnelUp) -> None:
    """The wires of the first client and of the last show what the model of the tunnel says."""
    proofs = list(proofs_after(lab, up, seed=lambda _name: 1, keep=lambda _name, _pcap: None))
    for proof, agreed in zip(proofs, up.negotiated[:: CLIENTS - 1], strict=True):
        assert proof.verdict is ProofVerdict.PROVED, proof.message
        wanted = datagram(
            PAYLOAD_BYTES,
            link_mtu_bytes=1500,
            encapsulation=tunnel.encapsulation(agreed),
            inner_ip=IP_VERSIONS[tunnel.params.inner],
        )
        seen = {one.payload_bytes: one.overhead_bytes for one in proof.samples}
        assert seen[PAYLOAD_BYTES] == wanted.overhead_bytes


def check_nothing_stays(lab: Lab, wires: set[str]) -> None:
    assert interfaces(lab.server_host) == {"lo", *wires}
    assert all(interfaces(host) == {"lo", "eth0"} for host in lab.client_hosts)
    for host in (*lab.client_hosts, lab.server_host):
        assert [process.name for process in host.spawned if process.poll() is None] == []
        for what in ("state", "policy"):
            assert host.run(["ip", "xfrm", what]).text() == ""
        addresses = host.run(["ip", "-4", "-o", "address", "show", "dev", "eth0"]).text()
        assert len(addresses.splitlines()) == 1


class Quiet:
    """Observes nothing and goes on."""

    def during(self, _step: object) -> AbstractContextManager[None]:
        return nullcontext()

    def waiting(self, _why: str) -> AbstractContextManager[None]:
        return nullcontext()

    def progress(self, *_: object) -> None:
        """Nobody looks."""

    def cancelled(self) -> bool:
        return False
