"""The proof by wire on real tunnels: equal to the model and to tcpdump, and not to be deceived."""

import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tunnelmark.engine.binary import find_engine
from tunnelmark.engine.link import Direction, LinkSpec, Loss, Queue
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab.lab import Lab
from tunnelmark.model.block import PROBE_CLASS, ProofVerdict, WireProof
from tunnelmark.model.errors import LabError
from tunnelmark.model.overhead import IP_VERSIONS, datagram, fragmentation_point
from tunnelmark.model.topology import Topology
from tunnelmark.model.tunnel import Site, TrafficPath, TunnelUp, WireRule
from tunnelmark.probes.capture import Capture
from tunnelmark.probes.prober import PROBE_SPACING_NS, EngineProber
from tunnelmark.probes.wire import Watch, prove
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.none import NoneTunnel
from tunnelmark.tunnels.openvpn import OpenVpnParams, OpenVpnTunnel
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.tunnels.wireguard.driver import WireGuardTunnel

pytestmark = pytest.mark.lab

# Both sides of every padding boundary, of the fragmentation point, and the usual ones.
SIZES = (25, *range(96, 114), 1000, *range(1368, 1396), 1419, 1420, 1421, 1472, 1473, 2000, 2900)
FEW = (100, 1000, 1472)
# The figures that were captured by hand: outer IP bytes of a payload of 1000.
CASES: list[tuple[str, dict[str, object], int, int]] = [
    ("none", {}, 1028, 1472),
    ("none", {"inner": "ipv6"}, 1048, 1452),
    ("openvpn", {"cipher": "AES-256-GCM"}, 1080, 1420),
    ("openvpn", {"cipher": "CHACHA20-POLY1305"}, 1080, 1420),
    ("openvpn", {"cipher": "AES-128-GCM", "control": "tls-crypt-v2"}, 1080, 1420),
    ("openvpn", {"cipher": "AES-128-CBC"}, 1120, 1375),
    ("openvpn", {"cipher": "AES-256-CBC"}, 1120, 1375),
    ("openvpn", {"cipher": "AES-256-CBC", "auth": "SHA1"}, 1108, 1391),
    ("openvpn", {"cipher": "BF-CBC"}, 1112, 1391),
    ("openvpn", {"cipher": "AES-256-GCM", "compression": "lzo"}, 1081, 1419),
    ("openvpn", {"cipher": "AES-256-GCM", "mtu_bytes": 1400}, 1080, 1372),
    ("openvpn", {"key_exchange": "static", "cipher": "AES-256-CBC"}, 1116, 1387),
    ("openvpn", {"key_exchange": "static", "cipher": "BF-CBC", "auth": "SHA1"}, 1096, 1403),
    ("openvpn", {"control": "tls-crypt"}, 1080, 1420),
    ("openvpn", {"transport": "tcp"}, 1106, 1394),
    ("openvpn", {"transport": "tcp", "cipher": "AES-256-CBC"}, 1146, 1359),
    ("ssh_tun", {}, 1120, 1378),
    ("ssh_tun", {"cipher": "AES-256-GCM"}, 1128, 1378),
    ("ssh_tun", {"cipher": "AES-128-CTR"}, 1144, 1362),
    ("tinc", {}, 1088, 1372),
    ("nebula", {}, 1088, 1272),
    ("nebula", {"cipher": "CHACHA20-POLY1305", "mtu_bytes": 1440}, 1088, 1412),
    ("wireguard", {"implementation": "wireguard-go"}, 1100, 1392),
    ("wireguard", {"implementation": "boringtun"}, 1088, 1392),
    ("ocserv", {}, 1094, 1372),
    # What cannot be compressed goes as it is.
    ("ocserv", {"compression": "lz4"}, 1094, 1372),
    ("ocserv", {"cipher": "CHACHA20-POLY1305", "mtu_bytes": 1442}, 1086, 1414),
    ("ocserv", {"transport": "tls", "cipher": "AES-128-GCM"}, 1110, 1372),
    ("ocserv", {"outer": "ipv6"}, 1114, 1372),
    ("ocserv", {"inner": "ipv6", "transport": "tls", "outer": "ipv6"}, 1150, 1350),
    ("openvpn", {"inner": "ipv6", "outer": "ipv6"}, 1120, 1380),
    ("openvpn", {"inner": "ipv6", "cipher": "AES-256-CBC"}, 1136, 1355),
    ("openvpn", {"outer": "ipv6", "transport": "tcp"}, 1126, 1374),
    ("wireguard", {"inner": "ipv6", "outer": "ipv6"}, 1136, 1372),
    ("wireguard", {"inner": "ipv6", "implementation": "boringtun"}, 1108, 1372),
    ("ssh_tun", {"inner": "ipv6", "outer": "ipv6"}, 1164, 1342),
    ("tinc", {"inner": "ipv6", "outer": "ipv6"}, 1124, 1352),
    ("nebula", {"outer": "ipv6"}, 1108, 1272),
    ("softether", {}, 1124, 1376),
    ("softether", {"inner": "ipv6", "outer": "ipv6"}, 1164, 1336),
    ("socat_tls", {}, 1102, 1398),
    ("stunnel", {}, 1104, 1396),
    ("fastd", {}, 1080, 1378),
    ("fastd", {"method": "aes128-gcm", "mtu_bytes": 1448}, 1080, 1420),
    ("masque", {}, 1082, 1372),
    ("masque", {"inner": "ipv6", "outer": "ipv6"}, 1122, 1352),
    ("tailscale", {}, 1100, 1252),
    ("tailscale", {"inner": "ipv6", "outer": "ipv6", "mtu_bytes": 1420}, 1136, 1372),
    ("tailscale", {"path": "derp"}, 1183, 1252),
    ("tailscale", {"path": "derp", "inner": "ipv6", "outer": "ipv6"}, 1219, 1232),
    ("vxlan", {}, 1078, 1422),
    ("vxlan", {"inner": "ipv6", "outer": "ipv6"}, 1118, 1382),
]
STREAMS = {"ssh_tun", "softether", "socat_tls", "stunnel"}
_MOST_PROOFS = 3
"""As many as a run makes of one that could not see: a busy computer keeps probes waiting."""


def by_wire(case: tuple[str, dict[str, object], int, int]) -> Any:
    """Return a case; where packets go through a stream a busy computer brings them together.

    Those of ocserv do so too as long as its UDP has not taken over. QUIC puts acknowledgements onto
    packets that it sends at the same moment. Of Tailscale, whose daemon runs in user space, a proof
    on a busy computer could not see the largest payload that is not fragmented.
    """
    kind, params, *_ = case
    stream = kind in {*STREAMS, "ocserv", "masque", "tailscale"} or params.get("transport") == "tcp"
    marks = [pytest.mark.paced] if stream else []
    return pytest.param(case, marks=marks, id=f"{kind}{params or ''}")


def direction(loss: float = 0.0) -> Direction:
    return Direction(
        rate_bit_s=100_000_000,
        delay_ns=5_000_000,
        queue=Queue("bytes", 1 << 20),
        loss=Loss("independent", probability=loss) if loss else Loss(),
    )


@pytest.fixture(scope="module")
def engine() -> str:
    return find_engine()


@pytest.fixture(scope="module")
def lab(engine: str) -> Iterator[Lab]:
    spec = LinkSpec(direction(), direction(), seed=1)
    with Ledger() as ledger, Lab(ledger, Topology(), spec, engine=engine) as lab:
        yield lab


def proved(
    lab: Lab,
    engine: str,
    up: TunnelUp,
    path: int = 0,
    *,
    sizes: tuple[int, ...] = FEW,
    spacing_ns: int = PROBE_SPACING_NS,
    **more: Any,
) -> WireProof:
    over = up.paths[path]
    prober = EngineProber(
        over,
        client=lab.client_host,
        server=lab.server_host,
        engine=engine,
        seed=5,
        spacing_ns=spacing_ns,
        stream=bool(up.wire.tcp_ports),
    )
    watch = Watch(lab.link_host, "a", lab.client)
    for _ in range(_MOST_PROOFS):
        proof = prove(
            over, up.wire, prober=prober, watch=watch, payload_sizes=sizes, seed=7, **more
        )
        seen = {sample.payload_bytes for sample in proof.samples}
        if proof.verdict is ProofVerdict.SAW_WRONG or {*sizes} <= seen:
            break
    return proof


def make(kind: str, params: dict[str, object], lab: Lab) -> Tunnel:
    driver = tunnel_kinds()[kind]
    tunnel = driver(driver.params_type.model_validate(params))
    reason = tunnel.unavailable(lab.client_host)
    if reason and kind in {"masque", "tailscale"}:
        pytest.skip(reason)
    assert reason is None
    return tunnel


@pytest.mark.parametrize(
    ("kind", "params", "traffic_class"),
    [
        ("none", {}, PROBE_CLASS),
        ("none", {"inner": "ipv6"}, PROBE_CLASS),
        ("openvpn", {}, 0),
        ("openvpn", {"options": ["--passtos"]}, PROBE_CLASS),
        # RFC 6040: the kernel copies ECN.
        ("vxlan", {}, PROBE_CLASS & 0b11),
        ("vxlan", {"inner": "ipv6", "outer": "ipv6"}, PROBE_CLASS & 0b11),
        # ssh(1), IPQoS: its own, low delay for what is interactive.
        ("ssh_tun", {}, 0x10),
    ],
)
def test_the_proof_says_whether_the_traffic_class_is_copied(
    lab: Lab, engine: str, kind: str, params: dict[str, object], traffic_class: int
) -> None:
    tunnel = make(kind, params, lab)
    try:
        proof = proved(lab, engine, tunnel.up(lab.site))
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    assert proof.traffic_class == traffic_class


@pytest.mark.parametrize("case", [by_wire(case) for case in CASES])
def test_the_wire_the_model_and_the_known_figures_agree(
    lab: Lab, engine: str, case: tuple[str, dict[str, object], int, int]
) -> None:
    kind, params, outer, point = case
    tunnel = make(kind, params, lab)
    try:
        up = tunnel.up(lab.site)
        model = tunnel.encapsulation(up.negotiated[0])
        # In a stream the model holds for a packet that finds it idle: of three at once the last two
        # may share a segment. For the same reason, more time between probes. SoftEther and
        # stunnel put even two together into one record.
        together = 1 if kind in ("softether", "stunnel") else 2
        most = together * (up.negotiated[0].mtu_bytes - 60) if model and model.stream else 2900
        sizes = tuple(size for size in SIZES if size <= most)
        spacing_ns = PROBE_SPACING_NS * (4 if model and model.stream else 1)
        inner = IP_VERSIONS[tunnel.params.inner]

        def predicted(size: int) -> tuple[int, ...]:
            return datagram(
                size, link_mtu_bytes=1500, encapsulation=model, inner_ip=inner
            ).outer_packet_bytes

        # As a run does it: what contradicts the model is asked for again.
        proof = proved(lab, engine, up, sizes=sizes, spacing_ns=spacing_ns, expected=predicted)
        assert tunnel.problem() is None
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    assert proof.marker_seen is not up.wire.encrypted
    assert proof.foreign_packets == 0
    seen = {sample.payload_bytes: sample.outer_packet_bytes for sample in proof.samples}
    assert seen == {size: predicted(size) for size in seen}
    assert {*sizes} <= seen.keys()
    assert seen[1000] == (outer,)
    assert proof.fragmentation_point_bytes == point
    assert fragmentation_point(link_mtu_bytes=1500, encapsulation=model, inner_ip=inner) == point
    assert (len(seen[point]), len(seen[point + 1])) == (1, 2)


# Without an overhead model what the capture shows is all that is known.
MEASURED: list[tuple[str, dict[str, object], int, set[int]]] = [
    ("vtun", {}, 1110, {1395}),
    ("n2n", {}, 1163, {1336}),
    # The number of the packet takes another byte from the 128th on.
    ("yggdrasil", {}, 1244, {1255, 1256}),
    # 4 bytes more in each packet, and none longer than asked for.
    ("openvpn", {"fragment": 1300}, 1084, {1244}),
]


@pytest.mark.paced
@pytest.mark.parametrize("case", MEASURED)
def test_of_a_tunnel_without_a_model_the_capture_tells_the_overhead(
    lab: Lab, engine: str, case: tuple[str, dict[str, object], int, set[int]]
) -> None:
    kind, params, outer, points = case
    tunnel = make(kind, params, lab)
    assert not tunnel.modelled
    try:
        up = tunnel.up(lab.site)
        proof = proved(lab, engine, up, spacing_ns=PROBE_SPACING_NS * 4)
        assert tunnel.problem() is None
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    seen = {sample.payload_bytes: sample.outer_packet_bytes for sample in proof.samples}
    assert seen[1000] == (outer,)
    assert proof.fragmentation_point_bytes in points


@pytest.mark.parametrize(("kind", "params"), [("none", {}), ("openvpn", {}), ("wireguard", {})])
def test_an_independent_tcpdump_sees_the_same_overhead(
    lab: Lab, engine: str, kind: str, params: dict[str, object]
) -> None:
    tunnel = make(kind, params, lab)
    sizes = (100, 1000, 1472)
    try:
        up = tunnel.up(lab.site)
        proof = proved(lab, engine, up, sizes=sizes)
        path = up.paths[0]
        lengths = {size: dumped(lab, path, size) for size in sizes}
    finally:
        tunnel.down()
    assert proof.ok, proof.message
    seen = {sample.payload_bytes: sample.outer_packet_bytes for sample in proof.samples}
    for size in sizes:
        # Ten of each; a stray keepalive would be one packet of another length.
        assert sorted(lengths[size]) == sorted(seen[size] * 10)


SENDER = """
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER: fragment, as the workloads do
s.bind((sys.argv[1], 0))
for _ in range(10):
    s.sendto(os.urandom(int(sys.argv[3])), (sys.argv[2], 7791))
    time.sleep(0.01)
"""
SINK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7791))
print("bound", flush=True)
while True:
    s.recv(65536)
"""


def dumped(lab: Lab, path: TrafficPath, size: int) -> list[int]:
    """Send ten datagrams by a socket of Python's; return the IP lengths tcpdump prints."""
    watcher = lab.link_host.spawn(
        ["tcpdump", "-i", "a", "-n", "-v", "-l", "-Q", "in", "--immediate-mode", "ip"],
        name=f"independent-{size}-{time.monotonic_ns()}",
        lines=True,
    )
    try:
        listening(watcher)
        sink = lab.server_host.spawn(
            [sys.executable, "-c", SINK, path.server_address],
            name=f"sink-{size}-{time.monotonic_ns()}",
            lines=True,
        )
        assert sink.read_line(10) == "bound"
        lab.client_host.run(
            [sys.executable, "-c", SENDER, path.client_address, path.server_address, str(size)]
        )
        time.sleep(0.3)
        sink.stop()
    finally:
        watcher.stop()
    lines = []
    while (line := watcher.read_line(5)) is not None:
        lines.append(line)
    return [int(n) for line in lines for n in re.findall(r"^\S+ IP \(.*length (\d+)", line)]


def listening(process: Any) -> None:
    for _ in range(500):
        if "listening on a," in process.log_tail(5):
            return
        time.sleep(0.02)
    pytest.fail(f"tcpdump does not listen: {process.log_tail(5)}")


class CipherNone(OpenVpnTunnel):
    """A driver gone wrong: the tunnel comes up, carries everything, and encrypts nothing."""

    words: tuple[str, ...] = ()

    def _arguments(self, side: Any) -> list[str]:
        kept = super()._arguments(side)
        kept = ["none" if word == self.params.cipher else word for word in kept]
        return [*kept, *self.words]

    def _wanted(self, report: Any) -> list[tuple[str, object, object]]:
        assert report.cipher == "[null-cipher]"
        return []


class CompressesOnly(CipherNone):
    """Nothing encrypts, but lzo works on what passes, so the text is in pieces."""

    words = ("--comp-lzo", "yes", "--allow-compression", "yes")


class Bypass(NoneTunnel):
    """The inner addresses stand on the link's own interface: traffic passes by the tunnel."""

    def up(self, site: Site) -> TunnelUp:
        up = super().up(site)
        client, server = site.inner_ipv4(0)
        for end, own, other in ((site.client, client, server), (site.server, server, client)):
            end.host.run(["ip", "address", "add", f"{own}/32", "dev", end.interface])
            far = site.server if end is site.client else site.client
            end.host.run(["ip", "route", "add", f"{other}/32", "via", far.ipv4, "src", own])
        return _claiming(up, TrafficPath("0", client, server, "eth0", "eth0", 1500))

    def clean(self, site: Site) -> None:
        client, server = site.inner_ipv4(0)
        for end, own, other in ((site.client, client, server), (site.server, server, client)):
            end.host.run(["ip", "route", "delete", f"{other}/32"], check=False)
            end.host.run(["ip", "address", "delete", f"{own}/32", "dev", end.interface])


def _claiming(up: TunnelUp, path: TrafficPath) -> TunnelUp:
    rule = WireRule(
        encrypted=True, describe="UDP to or from port 1194", ip_protocols=(17,), udp_ports=(1194,)
    )
    return TunnelUp((path,), up.negotiated, rule, up.processes)


@pytest.mark.parametrize("driver", [CipherNone, CompressesOnly])
def test_a_tunnel_that_silently_passes_cleartext_fails(
    lab: Lab, engine: str, driver: type[OpenVpnTunnel]
) -> None:
    tunnel = driver(OpenVpnParams.model_validate({"count": 1}))
    assert tunnel.unavailable(lab.client_host) is None
    try:
        up = tunnel.up(lab.site)
        proof = proved(lab, engine, up)
    finally:
        tunnel.down()
    assert not proof.ok
    assert proof.marker_seen
    assert proof.encrypted_expected
    # It is the tunnel's own packets that can be read, not somebody else's.
    assert proof.foreign_packets == 0
    assert re.search(
        r"the plaintext marker is readable in \d+ of \d+ packets, the first is UDP from "
        r"198\.18\.0\.\d port \d+ to 198\.18\.0\.\d port \d+",
        proof.message,
    )


def test_a_path_that_bypasses_the_tunnel_fails(lab: Lab, engine: str) -> None:
    tunnel = Bypass(NoneTunnel.params_type(count=1))
    up = tunnel.up(lab.site)
    try:
        proof = proved(lab, engine, up)
    finally:
        tunnel.clean(lab.site)
        tunnel.down()
    assert not proof.ok
    assert proof.marker_seen
    assert proof.foreign_packets == proof.packets > 0
    assert "packets on the link are not UDP to or from port 1194" in proof.message


def test_each_of_several_tunnels_is_proved_and_the_baseline_beside_them(
    lab: Lab, engine: str
) -> None:
    tunnel = make("wireguard", {"count": 2}, lab)
    baseline = make("none", {}, lab)
    kept: dict[str, bytes] = {}
    try:
        up = tunnel.up(lab.site)
        bare = baseline.up(lab.site)
        proofs = [proved(lab, engine, up, n, keep=kept.__setitem__) for n in range(2)]
        beside = proved(lab, engine, bare, idle=(up.wire,))
    finally:
        baseline.down()
        tunnel.down()
    assert [proof.path for proof in proofs] == ["0", "1"]
    assert all(proof.ok for proof in proofs), proofs
    assert beside.ok, beside.message
    assert (beside.marker_seen, beside.fragmentation_point_bytes) == (True, 1472)
    assert {name.split("-")[2] for name in kept} == {"0", "1"}


def test_loss_on_the_link_spoils_no_proof(engine: str) -> None:
    spec = LinkSpec(direction(loss=0.1), direction(loss=0.1), seed=3)
    with Ledger() as ledger, Lab(ledger, Topology(), spec, engine=engine) as lossy:
        tunnel = make("openvpn", {"cipher": "AES-256-CBC"}, lossy)
        try:
            proof = proved(lossy, engine, tunnel.up(lossy.site), sizes=FEW)
        finally:
            tunnel.down()
    assert proof.ok, proof.message
    assert proof.fragmentation_point_bytes == 1375


def test_a_jumbo_link_is_searched_at_its_own_size(engine: str) -> None:
    spec = LinkSpec(direction(), direction(), seed=3)
    with Ledger() as ledger, Lab(ledger, Topology(mtu_bytes=2000), spec, engine=engine) as wide:
        tunnel = make("wireguard", {}, wide)
        try:
            up = tunnel.up(wide.site)
            proof = proved(wide, engine, up)
            model = tunnel.encapsulation(up.negotiated[0])
        finally:
            tunnel.down()
    assert proof.ok, proof.message
    assert proof.fragmentation_point_bytes == 1892
    assert fragmentation_point(link_mtu_bytes=2000, encapsulation=model) == 1892


def test_a_capture_that_is_full_says_so(lab: Lab, engine: str) -> None:
    tunnel = make("none", {}, lab)
    path = tunnel.up(lab.site).paths[0]
    prober = EngineProber(
        path, client=lab.client_host, server=lab.server_host, engine=engine, seed=5
    )
    with Capture(lab.link_host, "a", name="small", max_packets=5) as capture:
        prober.send([100], marker=b"x", repeats=10)
        captured = capture.stop()
    tunnel.down()
    assert captured.full
    assert len(captured.frames) == 5
    assert captured.pcap.startswith(b"\x4d\x3c\xb2\xa1")


def test_a_capture_of_an_interface_that_is_not_there_is_tcpdump_s_own_error(lab: Lab) -> None:
    capture = Capture(lab.link_host, "nowhere0", name="nowhere")
    with pytest.raises(
        LabError, match=r"tcpdump on nowhere0 of link ended with status 1: .*nowhere0"
    ):
        capture.__enter__()


def test_wireguard_reports_the_implementation_that_runs(lab: Lab) -> None:
    tunnel = make("wireguard", {}, lab)
    assert isinstance(tunnel, WireGuardTunnel)
    try:
        agreed = tunnel.up(lab.site).negotiated[0]
    finally:
        tunnel.down()
    expected = "kernel" if lab.client_host.has_kernel("wireguard") else "wireguard-go"
    assert agreed.implementation in (expected, "boringtun")
    assert re.match(r"(WireGuard of Linux|wireguard-go v|boringtun) ?\d", agreed.version)
