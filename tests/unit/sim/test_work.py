"""What a tunnel costs on a device: a fit there, a fit elsewhere scaled, or the cipher alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from made_costs import MODEL
from tunnelmark.devices.ciphers import rate_of
from tunnelmark.devices.registry import DEVICES
from tunnelmark.hosts.cgroup import Quota
from tunnelmark.lab.benchmarks import Goal
from tunnelmark.lab.calibrate import TOLERANCE, calibrate
from tunnelmark.model.costs import (
    CipherRate,
    CostedDevice,
    CostedTunnel,
    CostModel,
    EndCosts,
    Fitted,
    WorkCosts,
)
from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Completed
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.sim.work import FREE, Work, scaled, work_of
from tunnelmark.tunnels.registry import tunnel_kinds

PI = DriverSpec("pi-b", "pi-b", {}, {"endpoint": "client", "calibrate": "AES-256-GCM"})
HOST = DriverSpec("host", "host", {})
RATE = CipherRate("AES-256-GCM", 4000.0, 52.0)


def exactly(value: float) -> Fitted:
    return Fitted(value, value, value)


def end(packet_ns: float, byte_ps: float, servers: int = 1) -> EndCosts:
    work = WorkCosts(exactly(packet_ns), exactly(byte_ps), exactly(0.2), exactly(64.0))
    return EndCosts(work, work, servers=servers)


def fit(device: str, rate: CipherRate | None = None) -> CostModel:
    return replace(
        MODEL,
        tunnel=CostedTunnel("openvpn", "openvpn"),
        device=CostedDevice(device),
        provenance=replace(MODEL.provenance, rate=rate),
        client=end(10_000.0, 1_000.0),
        server=end(20_000.0, 1_000.0),
    )


def worked(
    *models: CostModel, device: DriverSpec = PI, kind: str = "openvpn", **own: object
) -> Work:
    spec = DriverSpec(kind, kind, own, own)
    return work_of(make(tunnel_kinds(), spec), spec, device, models)


def test_a_fit_on_the_device_itself_comes_first() -> None:
    found = worked(fit("host", RATE), fit("pi-b"))
    assert (found.client, found.server) == (fit("pi-b").client, fit("pi-b").server)
    (note,) = found.notes
    assert note.startswith("CPU work as fitted on pi-b itself (OpenVPN 2.6.14")


def test_a_fit_on_a_host_is_scaled_at_the_end_that_is_on_the_device() -> None:
    found = worked(fit("host", RATE))
    # 5.2 MB/s of 52 in plain code: a tenth of a core.
    assert found.client is not None
    assert found.client.wrap.packet_ns.estimate == pytest.approx(100_000)
    longer_ps = 1e6 / 52 - 1e6 / 4000
    assert found.client.wrap.byte_ps.estimate == pytest.approx(10 * (1_000 + longer_ps))
    assert found.client.wrap.scatter == exactly(0.2)
    assert found.client.wrap.most_waiting == exactly(64.0)
    assert found.server == fit("host").server
    assert found.cores == {"client": 1}
    (note,) = found.notes
    assert note.startswith("CPU work as fitted elsewhere, OpenVPN 2.6.14")
    assert note.endswith(
        "scaled to pi-b by AES-256-GCM: 52 MB/s there without cipher instructions, 5.2 MB/s, "
        "AES-256-CBC x 0.43, an estimate on the device"
    )


def test_without_a_rate_or_a_fit_it_is_the_cipher_alone() -> None:
    alone = worked()
    assert alone.client is not None
    for job in (alone.client.wrap, alone.client.unwrap):
        assert (job.packet_ns.estimate, job.scatter, job.most_waiting) == (0.0, None, None)
        assert job.byte_ps.estimate == pytest.approx(1e6 / 5.2)
    assert alone.server is None
    assert "a real program takes longer; work at the other end takes no time" in alone.notes[0]
    unrated = worked(fit("host"))
    assert (unrated.client, unrated.server) == (alone.client, fit("host").server)
    assert unrated.notes[0].endswith("the fit of loads-20261122 has no rate to scale it by")
    other = worked(fit("host", replace(RATE, cipher="AES-128-CBC")))
    assert other.client == alone.client


@pytest.mark.parametrize(
    ("endpoint", "ends"), [("server", {"server"}), ("both", {"client", "server"})]
)
def test_the_device_stands_where_the_study_puts_it(endpoint: str, ends: set[str]) -> None:
    found = worked(device=replace(PI, params={"endpoint": endpoint}))
    assert {name for name, one in found.ends.items() if one is not None} == ends
    assert set(found.cores) == ends


def test_a_device_has_no_more_threads_than_cores_and_its_tunnels_share_them() -> None:
    wide = replace(fit("host", RATE), client=end(10_000.0, 0.0, servers=8))
    four = replace(PI, kind="pi-3", label="small")
    found = worked(wide, device=four, count=3)
    assert found.client is not None
    assert found.client.servers == 4
    assert found.cores == {"client": 4}
    assert found.notes[1] == "3 tunnels share 4 cores of small, in the order in which packets come"


def test_on_a_host_a_fit_holds_as_it_is_and_without_one_work_takes_no_time() -> None:
    assert worked(device=HOST).notes == (
        "no cost model, so CPU work takes no time in this simulation",
    )
    found = worked(fit("host", RATE), device=HOST)
    assert (found.client, found.server, found.notes) == (fit("host").client, fit("host").server, ())
    assert dict(found.cores) == {}


def test_no_tunnel_costs_a_device_nothing() -> None:
    assert worked(kind="none") == FREE


@pytest.mark.parametrize(
    ("kind", "own", "lacking"),
    [
        ("gre", {}, "no published rate of its own cipher"),
        ("pptp", {}, r"no published rate of MPPE-128 \(RC4, stateless\)"),
        ("ikev2", {"suite": "AES-128-GCM"}, "no published rate of AES-128-GCM"),
        ("ipsec", {"suite": "NULL-SHA1"}, "no published rate of NULL-SHA1"),
        ("l2tp_ipsec", {"ipsec": False}, "no published rate of its own cipher"),
    ],
)
def test_a_cipher_without_a_rate_is_refused_by_name(
    kind: str, own: dict[str, Any], lacking: str
) -> None:
    with pytest.raises(RefusedError, match=f"no cost model of {kind} on it, and {lacking}"):
        worked(kind=kind, **own)


@pytest.mark.parametrize(
    ("kind", "own", "figure"),
    [
        ("wireguard", {}, "ChaCha20-Poly1305"),
        ("ipsec", {"suite": "3DES-SHA1"}, "DES-EDE3-CBC"),
        ("ikev2", {"suite": "AES-256-CBC-SHA256"}, "AES-256-CBC"),
        ("l2tp_ipsec", {"suite": "AES-128-CBC-SHA1"}, "AES-128-CBC"),
        ("openvpn", {"cipher": "BF-CBC"}, "BF-CBC"),
        ("openvpn", {"cipher": "CHACHA20-POLY1305"}, "ChaCha20-Poly1305"),
        ("macsec", {"cipher": "GCM-AES-256"}, "AES-256-GCM"),
    ],
)
def test_a_tunnel_s_cipher_has_the_rate_of_its_name(
    kind: str, own: dict[str, object], figure: str
) -> None:
    cipher = make(tunnel_kinds(), DriverSpec(kind, kind, own)).packet_cipher
    assert cipher is not None
    device = DEVICES["pi-b"]
    assert rate_of(device, cipher) == device.figures[figure]


class Computer:
    """Of known rates: a program under its limit gets that share of a core."""

    def __init__(self, own: float, plain: float) -> None:
        self.own, self.plain = own, plain
        self.quota: Quota | None = None

    def limit(self, quota: Quota | None) -> None:
        self.quota = quota

    def bench(
        self, argv: Sequence[str], environment: Mapping[str, str], _limit_s: float
    ) -> Completed:
        share = 1.0 if self.quota is None else self.quota.share
        if argv[0] == "dd":
            words = f"1 bytes copied, {1 / (1e6 * share):.6f} s, 1 B/s\n"
            return Completed(tuple(argv), 0, b"", words.encode())
        rate = (self.plain if environment else self.own) * share * 1e6
        return Completed(tuple(argv), 0, f"+F:25:{argv[-1]}:{rate:.2f}\n".encode(), b"")


@given(
    kind=st.sampled_from(sorted(kind for kind, device in DEVICES.items() if device.limited)),
    cipher=st.sampled_from(["AES-128-CBC", "AES-256-CBC", "AES-256-GCM", "ChaCha20-Poly1305"]),
    faster=st.floats(1.1, 20.0),
    instructions=st.floats(1.0, 30.0),
    packet_ns=st.floats(0.0, 50_000.0),
    other_ps=st.floats(0.0, 3_000.0),
    octets=st.integers(40, 1500),
)
def test_a_scaled_fit_is_what_the_limit_of_a_lab_would_make_of_the_program(
    *,
    kind: str,
    cipher: str,
    faster: float,
    instructions: float,
    packet_ns: float,
    other_ps: float,
    octets: int,
) -> None:
    device = DEVICES[kind]
    published = device.figures[cipher]
    # Plain code may be too slow for the device: then its programs run with instructions.
    own = published.value * faster
    plain = own / instructions
    assume(abs(plain / published.value - 1) > 0.01)  # not decided by the last digit of a benchmark
    computer = Computer(own, plain)
    limit = calibrate(device, Goal(cipher), computer.bench, computer.limit)
    # The program in that group: what it does beside the cipher, and the cipher in the code it sees.
    code = plain if limit.environment else own
    in_lab_ns = (packet_ns + octets * (other_ps + 1e6 / code) / 1e3) / limit.quota.share
    # The same program fitted without a limit.
    fitted = end(packet_ns, other_ps + 1e6 / own)
    found = scaled(fitted, CipherRate(cipher, own, plain), device, published).wrap
    in_simulation_ns = found.packet_ns.estimate + octets * found.byte_ps.estimate / 1e3
    assert in_simulation_ns == pytest.approx(in_lab_ns, rel=TOLERANCE)
