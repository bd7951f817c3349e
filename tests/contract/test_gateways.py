"""Every driver that can be a gateway here: one server, several clients, each on its own wire."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from places import FULL_KERNEL_GATEWAYS, Params, driven, interfaces
from tunnelmark.engine.binary import find_engine
from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.session.foreign import foreign_check
from tunnelmark.lab.session.listen import listening
from tunnelmark.lab.session.warm import warm_up
from tunnelmark.model.block import ProofVerdict
from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.overhead import datagram
from tunnelmark.model.topology import Topology, wire_macs
from tunnelmark.model.tunnel import TunnelUp
from tunnelmark.probes.prober import EngineProber
from tunnelmark.probes.wire import prove
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.esp import daemon as ike_daemon
from tunnelmark.tunnels.esp.tunnel import EspTunnel
from tunnelmark.tunnels.registry import tunnel_kinds

CLIENTS = 3
KINDS = tunnel_kinds()
GATEWAYS = [
    kind for kind, driver in KINDS.items() if driver.gateway and kind not in FULL_KERNEL_GATEWAYS
]
VARIANTS: list[tuple[str, dict[str, object]]] = [
    *[(kind, {}) for kind in GATEWAYS],
    ("none", {"inner": "ipv6"}),
    ("openvpn", {"transport": "tcp", "control": "tls-crypt"}),
    ("openvpn", {"control": "tls-crypt-v2", "inner": "ipv6", "outer": "ipv6"}),
    ("wireguard", {"psk": True, "inner": "ipv6", "outer": "ipv6"}),
    ("ipsec", {"auth": "cert", "inner": "ipv6", "outer": "ipv6"}),
    ("ssh_tun", {"inner": "ipv6", "outer": "ipv6"}),
    ("ocserv", {"transport": "tls", "inner": "ipv6"}),
    ("openvpn", {"shared": True}),
]
_WAY = Direction(50_000_000, 2_000_000, Queue("packets", 200))
LINK = LinkSpec(_WAY, _WAY, seed=1)


def name_of(variant: tuple[str, dict[str, object]]) -> str:
    kind, params = variant
    return " ".join([kind, *(f"{key}={value}" for key, value in params.items())])


each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
PROGRAMS = [kind for kind in GATEWAYS if kind != "none"]
each_program = pytest.mark.parametrize("kind", PROGRAMS)


class Standing:
    """Gateways that are up, gone with the test."""

    def __init__(self, stack: ExitStack, ledger: Ledger, logs: Path) -> None:
        self.stack, self.ledger, self.logs = stack, ledger, logs

    def lab(self, clients: int | None = CLIENTS, *, shared: bool = False) -> Lab:
        topology = Topology(clients=clients, shared=shared)
        lab = Lab(self.ledger, topology, LINK, engine=find_engine(), logs=self.logs)
        return self.stack.enter_context(lab)

    def up(self, kind: str, params: Params) -> tuple[Lab, Tunnel, TunnelUp]:
        tunnel = driven(kind, {**params, "clients": CLIENTS})
        lab = self.lab(shared=tunnel.params.shared)
        if reason := tunnel.unavailable(lab.client_host):
            pytest.skip(reason)
        self.stack.callback(tunnel.down)
        return lab, tunnel, tunnel.up(lab.site)


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    # Sockets of daemons lie in it, whose paths may not be long; that of tmp_path is.
    with (
        tempfile.TemporaryDirectory(prefix="tm") as root,
        Ledger(Path(root)) as ledger,
        ExitStack() as stack,
    ):
        yield Standing(stack, ledger, tmp_path)


@pytest.mark.lab
@each_variant
def test_every_client_has_a_path_and_frames_are_only_the_tunnels(
    variant: tuple[str, dict[str, object]], standing: Standing
) -> None:
    lab, tunnel, up = standing.up(*variant)
    assert len(lab.emulators) == (1 if "shared" in variant[1] else CLIENTS)
    before = lab.counters()
    assert [path.name for path in up.paths] == ["0", "1", "2"]
    assert len({path.client_address for path in up.paths}) == CLIENTS
    assert len({path.server_address for path in up.paths}) == 1
    assert len(up.negotiated) == CLIENTS
    # Raises unless packets of every client come back.
    warm_up(up, lab, seed=1)
    after = lab.counters()
    (check,) = foreign_check(before, after, [up.wire])
    assert check.ok, check.message
    tunnel.check_agreed()
    assert tunnel.problem() is None


# A batch of them cannot be mistaken, as one of few probes can on a busy computer.
SIZES = tuple(range(112, 1300, 100))


@pytest.mark.lab
@pytest.mark.parametrize(
    ("kind", "params"),
    [*((kind, {}) for kind in PROGRAMS), ("wireguard", {"shared": True})],
)
def test_the_proof_and_the_overhead_model_hold_on_each_wire(
    kind: str, params: Params, standing: Standing
) -> None:
    lab, tunnel, up = standing.up(kind, params)
    for path, agreed in zip(up.paths, up.negotiated, strict=True):
        assert path.client is not None
        with listening(lab, up, path) as watch:
            prober = EngineProber(
                path,
                client=path.client.host,
                server=lab.server_host,
                engine=find_engine(),
                seed=1,
            )
            proof = prove(
                path,
                up.wire,
                prober=prober,
                watch=watch,
                payload_sizes=SIZES,
                seed=1,
                search=False,
            )
        assert proof.verdict is ProofVerdict.PROVED, proof.message
        (sample,) = (one for one in proof.samples if one.payload_bytes == 512)
        model = tunnel.encapsulation(agreed)
        assert model is not None
        wanted = datagram(512, link_mtu_bytes=1500, encapsulation=model)
        assert sample.overhead_bytes == wanted.overhead_bytes


@pytest.mark.lab
@each_program
def test_one_process_serves_all_clients_and_each_client_is_in_its_namespace(
    kind: str, standing: Standing
) -> None:
    lab, tunnel, up = standing.up(kind, {})
    living = [process for process in lab.server_host.spawned if process.poll() is None]
    of_server = [process.pid for name, process in up.processes if name == "server"]
    assert len(living) == len(of_server) == 1
    namespaces = {Path(f"/proc/{process.pid}/ns/net").stat().st_ino for _, process in up.processes}
    assert len(up.processes) == len(namespaces) == CLIENTS + 1
    before = [interfaces(host) for host in lab.client_hosts]
    assert all(len(found) == len(before[0]) for found in before)
    tunnel.down()
    left = [process for host in lab.client_hosts for process in host.spawned]
    assert all(process.poll() is not None for process in [*left, *living])
    assert all(interfaces(host) == {"lo", "eth0"} for host in lab.client_hosts)
    assert interfaces(lab.server_host) == {"lo", "eth0", "eth1", "eth2"}


@pytest.mark.lab
@each_program
def test_a_client_that_is_killed_is_reported_and_the_others_go_on(
    kind: str, standing: Standing
) -> None:
    lab, tunnel, up = standing.up(kind, {})
    (killed,) = [process for process in lab.client_hosts[1].spawned if process.poll() is None]
    killed.kill()
    killed.wait(5.0)
    problem = tunnel.problem()
    assert problem is not None
    assert "on client1 ended" in problem
    others = TunnelUp((up.paths[0], up.paths[2]), up.negotiated, up.wire)
    warm_up(others, lab, seed=2)


@pytest.mark.lab
def test_a_client_that_agrees_no_more_is_seen_beside_the_others(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tunnel, _ = standing.up("ipsec", {})
    monkeypatch.setattr(ike_daemon, "_SETTLE_LIMIT_S", 0.0)
    assert isinstance(tunnel, EspTunnel)
    client = tunnel._ends[1].daemon
    assert client._swanctl("--terminate", "--child", "esp1", "--force").returncode == 0
    with pytest.raises(TunnelError, match=r"client1 has 0 associations esp1, must have 1"):
        tunnel.check_agreed()


@pytest.mark.lab
def test_no_frame_goes_from_client_to_client_on_a_shared_link(standing: Standing) -> None:
    lab = standing.lab(shared=True)
    one, other = lab.clients[:2]
    mac, _ = wire_macs(1)
    words = ["ip", "neighbour", "replace", other.ipv4, "lladdr", mac, "dev", "eth0"]
    one.host.run(words)
    ping = ["ping", "-c", "1", "-w", "1"]
    assert one.host.run([*ping, lab.server.ipv4], check=False).returncode == 0
    assert one.host.run([*ping, other.ipv4], check=False).returncode != 0


@pytest.mark.lab
def test_clients_cannot_reach_each_other_through_openvpn(standing: Standing) -> None:
    lab, _, up = standing.up("openvpn", {})
    other = up.paths[2].client_address
    done = lab.client_hosts[0].run(["ping", "-c", "1", "-w", "1", other], check=False)
    assert done.returncode != 0


@pytest.mark.lab
def test_a_link_that_dies_is_named_by_its_client(standing: Standing) -> None:
    lab = standing.lab()
    assert lab.problem() is None
    assert len(lab.emulators) == CLIENTS
    lab.emulators[2].kill()
    lab.emulators[2].wait(5.0)
    assert str(lab.problem()).startswith("the link emulator of client 2 ended")
    assert lab.counters() is None


@pytest.mark.lab
def test_a_driver_without_a_gateway_is_refused_before_it_starts_anything(
    standing: Standing,
) -> None:
    lab = standing.lab(None)
    tunnel = driven("tinc", {"clients": 3})
    with pytest.raises(RefusedError) as caught:
        tunnel.up(lab.site)
    assert str(caught.value) == "tinc cannot be a gateway: leave out clients, or set count"
    assert not lab.client_host.spawned


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_driver_is_a_gateway_or_says_that_it_is_none(kind: str) -> None:
    reason = driven(kind, {"clients": 2}).no_gateway()
    assert (reason is None) == KINDS[kind].gateway
    assert reason is None or reason.startswith(f"{kind} cannot be a gateway")
    assert driven(kind, {}).no_gateway() is None
