"""Every tunnel driver that the registry finds, held to ``tunnels/base.py``."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from places import Places, driven, interfaces, placed
from tunnelmark.lab.lab import Lab
from tunnelmark.lab.place import MachinePlace
from tunnelmark.model.errors import LabError, TunnelError
from tunnelmark.model.host import Completed, Host, Process
from tunnelmark.model.overhead import IP_VERSIONS, datagram, fragmentation_point
from tunnelmark.model.tunnel import DataPath, Site, TunnelUp
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.openvpn import OpenVpnTunnel
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.tunnels.wireguard import driver as wireguard
from tunnelmark.tunnels.wireguard.driver import WireGuardTunnel

KINDS = tunnel_kinds()
BETWEEN = [kind for kind, driver in KINDS.items() if not driver.is_link]
"""Kinds that run over a link; one that is the link itself (WLAN) has tests/lab/test_wpa2.py."""
NO_PARAMS: dict[str, object] = {}
TWO: dict[str, object] = {"count": 2}
SEVERAL: dict[str, dict[str, object]] = {"gre": {"keyed": True}}
"""What some kinds need beside a count."""
VARIANTS: list[tuple[str, dict[str, object]]] = [
    *[(kind, NO_PARAMS) for kind in BETWEEN],
    *[(kind, TWO | SEVERAL.get(kind, {})) for kind in BETWEEN],
    ("none", {"inner": "ipv6"}),
    ("openvpn", {"cipher": "BF-CBC", "compression": "lzo", "mtu_bytes": 1400}),
    ("openvpn", {"transport": "tcp", "control": "tls-crypt", "count": 2}),
    ("openvpn", {"key_exchange": "static", "cipher": "AES-256-CBC"}),
    ("openvpn", {"offload": "kernel"}),
    ("ocserv", {"compression": "lz4"}),
    ("openvpn", {"cipher": "AES-128-GCM", "control": "tls-crypt-v2", "keepalive": "10 s"}),
    ("wireguard", {"psk": True, "keepalive": "25 s", "count": 2}),
    ("wireguard", {"implementation": "wireguard-go"}),
    ("wireguard", {"implementation": "boringtun"}),
    ("wireguard", {"implementation": "kernel"}),
    ("ipsec", {"implementation": "kernel", "count": 2}),
    ("ikev2", {"implementation": "kernel"}),
    ("libreswan", {"udp_encapsulation": True, "count": 2}),
    ("ipsec", {"implementation": "libipsec", "ike": "v1", "auth": "cert", "suite": "3DES-SHA1"}),
    ("ipsec", {"implementation": "libipsec", "inner": "ipv6", "outer": "ipv6"}),
    (
        "ipsec",
        {
            "implementation": "libipsec",
            "pfs": "x25519",
            "childless": True,
            "ike_fragmentation": False,
        },
    ),
    ("ipsec", {"implementation": "kernel", "esn": True, "replay_window": 64, "pfs": "ecp256"}),
    ("ikev2", {"implementation": "libipsec", "pfs": "modp2048", "rekey": "60 s"}),
    ("ikev2", {"implementation": "libipsec", "auth": "cert", "count": 2}),
    ("openvpn", {"inner": "ipv6", "outer": "ipv6"}),
    ("openvpn", {"outer": "ipv6", "transport": "tcp"}),
    ("wireguard", {"inner": "ipv6", "outer": "ipv6"}),
    ("ssh_tun", {"inner": "ipv6", "outer": "ipv6"}),
    ("ssh_tun", {"key_exchange": "sntrup761x25519-sha512"}),
    ("ssh_tun", {"key_exchange": "ecdh-sha2-nistp256"}),
    ("ipsec", {"ike_group": "x25519"}),
    ("tinc", {"inner": "ipv6", "outer": "ipv6"}),
    ("nebula", {"outer": "ipv6"}),
    ("vxlan", {"inner": "ipv6", "outer": "ipv6"}),
    ("softether", {"inner": "ipv6", "outer": "ipv6"}),
    ("ocserv", {"transport": "tls", "cipher": "CHACHA20-POLY1305"}),
    ("ocserv", {"inner": "ipv6", "outer": "ipv6"}),
    ("sing_box", {"protocol": "hysteria2", "inner": "ipv6", "outer": "ipv6"}),
    ("sing_box", {"protocol": "shadowsocks", "stack": "gvisor", "mtu_bytes": 1400}),
    ("masque", {"inner": "ipv6", "outer": "ipv6"}),
    ("tailscale", {"path": "derp", "count": 2}),
    ("tailscale", {"inner": "ipv6", "outer": "ipv6"}),
    ("yggdrasil", {"outer": "ipv6", "mtu_bytes": 1400}),
    ("sing_box", {"protocol": "anytls", "stack": "system"}),
]
SLOW = dict.fromkeys(("ipsec", "ikev2", "ocserv", "tailscale"), 3)
SLOW |= {"libreswan": 5, "softether": 5} | dict.fromkeys(("l2tp_ipsec", "pptp", "sstp"), 9)
"""Kinds that take seconds to start: of the places where that can fail, every so many are tried."""
FIXED_NAMES = {"eth0", "ipsec0", "ipsec1", "ipsec2"}
"""Interfaces that are the lab's, or whose name is compiled into the program that makes them."""
LAST_DAEMON = {"ipsec": "charon", "ikev2": "charon", "libreswan": "pluto"}
LAST_DAEMON |= {"l2tp_ipsec": "xl2tpd", "pptp": "pptpd"}
"""A part of the name of the process that a kind lists last: the one whose death is tried."""


def name_of(variant: tuple[str, dict[str, object]]) -> str:
    kind, params = variant
    return " ".join([kind, *(f"{key}={value}" for key, value in params.items())])


each_kind = pytest.mark.parametrize("kind", list(KINDS))
each_variant = pytest.mark.parametrize(
    "variant", [placed(variant, *variant) for variant in VARIANTS], ids=name_of
)


class Bare:
    """A host that has nothing but what a test says; enough for the checks before a run."""

    def __init__(self, programs: set[str], kernel: set[str]) -> None:
        self.name = "bare"
        self.programs = programs
        self.kernel = kernel

    def has(self, program: str) -> str | None:
        return program if program in self.programs else None

    def has_kernel(self, feature: str) -> bool:
        return feature in self.kernel

    def run(self, argv: Sequence[str], **_more: object) -> Completed:
        return Completed(tuple(argv), 0, b"", b"")


class Limping:
    """A real host whose n-th start of a program, counted from 0, fails."""

    def __init__(self, host: Host, fails_at: int) -> None:
        self.host = host
        self.left = fails_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LabError("the test lets this program fail")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return self.host.run(*args, **kwargs)

    def spawn(self, *args: Any, **kwargs: Any) -> Process:
        self._count()
        return self.host.spawn(*args, **kwargs)


@each_kind
def test_parameters_are_a_closed_schema_with_descriptions(kind: str) -> None:
    params_type = KINDS[kind].params_type
    schema = params_type.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert all(field.get("description") for field in schema["properties"].values())
    assert params_type.model_validate({}).count == 1
    with pytest.raises(ValidationError):
        params_type.model_validate({"no_such_key": 1})
    with pytest.raises(ValidationError):
        params_type.model_validate({"count": 0})


@each_kind
def test_a_driver_that_was_never_up_has_no_problem_and_goes_down(kind: str) -> None:
    tunnel = driven(kind, NO_PARAMS)
    assert tunnel.problem() is None
    tunnel.down()
    tunnel.down()


@each_kind
def test_everything_a_driver_needs_is_named_with_its_remedy(kind: str) -> None:
    tunnel = driven(kind, NO_PARAMS)
    empty: Any = Bare(set(), set())
    need = tunnel.need(empty)
    assert need.programs
    programs, kernel = set(need.programs), set(need.kernel)
    complete: Any = Bare(programs, kernel)
    assert tunnel.unavailable(complete) is None
    for program in programs:
        host: Any = Bare(programs - {program}, kernel)
        reason = tunnel.unavailable(host)
        assert reason is not None
        assert reason.startswith(f"{program} is not installed (")
    for feature in kernel:
        lacking: Any = Bare(programs, kernel - {feature})
        assert tunnel.unavailable(lacking) == f"the kernel has no {feature}"


def test_the_parameters_of_another_driver_are_refused() -> None:
    for kind in ("openvpn", "wireguard"):
        with pytest.raises(TypeError, match=kind):
            KINDS[kind](TunnelParams(count=1))


LabOf = Callable[[Tunnel], Lab]


@pytest.fixture
def lab_of(places: Places) -> Iterator[LabOf]:
    """Make a lab where the tunnel can run."""
    with ExitStack() as stack:
        yield lambda tunnel: places.lab(stack, places.fits(tunnel))


def nothing_stays(lab: Lab) -> None:
    for host in (lab.client_host, lab.server_host):
        assert interfaces(host) == {"lo", "eth0"}
        assert [process.name for process in host.spawned if process.poll() is None] == []


def no_association_stays(lab: Lab) -> None:
    """A full kernel has no association and no policy any more, and ``eth0`` its own address."""
    if not isinstance(lab.place, MachinePlace):
        return
    for host in (lab.client_host, lab.server_host):
        for what in ("state", "policy"):
            assert host.run(["ip", "xfrm", what]).text() == ""
        addresses = host.run(["ip", "-4", "-o", "address", "show", "dev", "eth0"]).text()
        assert len(addresses.splitlines()) == 1


def ping(lab: Lab, up: TunnelUp, number: int = 0) -> bool:
    path = up.paths[number]
    done = lab.client_host.run(
        ["ping", "-n", "-c", "1", "-W", "5", "-I", path.client_address, path.server_address],
        check=False,
    )
    return done.returncode == 0


def eventually(tunnel: Tunnel) -> str | None:
    """Return the problem once there is one; a killed process takes a moment to be gone."""
    for _ in range(100):
        if problem := tunnel.problem():
            return problem
        time.sleep(0.05)
    return None


@pytest.mark.lab
@each_variant
def test_up_carries_traffic_and_down_leaves_nothing(
    lab_of: LabOf, variant: tuple[str, dict[str, object]]
) -> None:
    tunnel = driven(*variant)
    lab = lab_of(tunnel)
    try:
        up = tunnel.up(lab.site)
        count = tunnel.params.count
        assert [path.name for path in up.paths] == [str(number) for number in range(count)]
        assert len(up.negotiated) == count
        assert all(ping(lab, up, number) for number in range(count))
        assert tunnel.problem() is None
        tunnel.check_agreed()
        for path, agreed in zip(up.paths, up.negotiated, strict=True):
            assert path.mtu_bytes == agreed.mtu_bytes
            assert agreed.version
            assert agreed.data_path is not None
            assert agreed.data_path is not DataPath.USER_SPACE or up.processes
            for name in (path.client_interface, path.server_interface):
                assert len(name) <= 15
                assert name in FIXED_NAMES or name.startswith(lab.run_id)
            for host, name in (
                (lab.client_host, path.client_interface),
                (lab.server_host, path.server_interface),
            ):
                assert _mtu(host, name) == agreed.mtu_bytes
            if not tunnel.modelled:
                continue
            encapsulation = tunnel.encapsulation(agreed)
            inner = IP_VERSIONS[tunnel.params.inner]
            assert fragmentation_point(
                link_mtu_bytes=1500, encapsulation=encapsulation, inner_ip=inner
            )
            wire = datagram(1000, link_mtu_bytes=1500, encapsulation=encapsulation, inner_ip=inner)
            assert sum(layer.bytes for layer in wire.layers) == wire.overhead_bytes
        assert {host for host, _ in up.processes} <= {"client", "server"}
        assert all(process.poll() is None for _, process in up.processes)
    finally:
        tunnel.down()
    nothing_stays(lab)
    no_association_stays(lab)
    tunnel.down()


def _mtu(host: Host, interface: str) -> int:
    words = host.run(["ip", "-o", "link", "show", "dev", interface]).text().split()
    return int(words[words.index("mtu") + 1])


@pytest.mark.lab
@each_variant
def test_each_daemon_that_dies_and_each_interface_that_vanishes_is_a_problem(
    lab_of: LabOf, variant: tuple[str, dict[str, object]]
) -> None:
    tunnel = driven(*variant)
    lab = lab_of(tunnel)
    try:
        up = tunnel.up(lab.site)
        if up.processes:
            _, victim = up.processes[-1]
            assert LAST_DAEMON.get(variant[0], "") in victim.name
            victim.kill()
            # Its end is seen before what follows from it (a server that takes its interface away).
            victim.wait(10)
            problem = eventually(tunnel)
            assert problem is not None
            assert victim.name in problem
            assert "ended with status -9" in problem
        else:
            interface = up.paths[-1].server_interface
            lab.server_host.run(["ip", "link", "set", "dev", interface, "down"])
            assert eventually(tunnel) == f"interface {interface} on server is down"
    finally:
        tunnel.down()
        tunnel.down()
    if variant[0] != "none":
        nothing_stays(lab)
        no_association_stays(lab)


@pytest.mark.lab
@pytest.mark.parametrize(
    "kind", [placed(kind, kind, NO_PARAMS) for kind in BETWEEN if kind != "none"]
)
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_start_that_fails_half_way_leaves_nothing(lab_of: LabOf, kind: str, side: str) -> None:
    lab = lab_of(driven(kind, NO_PARAMS))
    succeeded = 0
    for fails_at in range(0, 90, SLOW.get(kind, 1)):
        site = lab.site
        limping: Any = Limping(getattr(site, side).host, fails_at)
        end = replace(getattr(site, side), host=limping)
        sides: dict[str, Any] = {side: end}
        broken = replace(site, **sides)
        tunnel = driven(kind, NO_PARAMS)
        try:
            tunnel.up(broken)
        except (LabError, TunnelError) as error:
            assert "the test lets this program fail" in str(error)  # noqa: PT017 - either may be
        else:
            succeeded += 1
        finally:
            limping.left = 1000
            tunnel.down()
        nothing_stays(lab)
        if succeeded:
            break
    assert succeeded == 1
    assert fails_at > 1


class OtherAuthority(OpenVpnTunnel):
    """The client holds a certificate of another run."""

    def _put_identities(self, site: Site) -> None:
        super()._put_identities(site)
        host = site.client.host
        folder = host.work_dir / "openvpn"
        stranger = RunAuthority("stranger", datetime.now(UTC)).issue("stranger", "client")
        host.put(folder / "client.crt", stranger.certificate)
        host.put(folder / "client.key", stranger.key)


class RefusedCipher(OpenVpnTunnel):
    """The two ends insist on different ciphers."""

    def _arguments(self, side: Any) -> list[str]:
        words = super()._arguments(side)
        return (
            [w.replace("AES-256-GCM", "AES-128-GCM") for w in words] if side == "client" else words
        )


class NoSuchProgram(OpenVpnTunnel):
    """OpenVPN is not there any more when it is started."""

    def _start(self, site: Site, side: Any, number: int) -> Any:
        host: Any = getattr(site, side).host
        original: Callable[..., Process] = host.spawn
        host.spawn = lambda argv, **more: original(["tm-no-such-openvpn", *argv[1:]], **more)
        try:
            return super()._start(site, side, number)
        finally:
            host.spawn = original


class WrongKey(WireGuardTunnel):
    """The server has the key of somebody else."""

    def _configure(self, site: Site, end: Any, *peers: Any) -> None:
        if end.side == "client":
            peers = tuple(replace(peer, keys=self._keys("server")) for peer in peers)
        super()._configure(site, end, *peers)


@pytest.mark.lab
@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (
            OtherAuthority,
            (
                r"openvpn (client|server) of tunnel 0 on \w+ ended with status \d+ before it "
                r"could agree on keys: (VERIFY ERROR|OpenSSL: error).*"
            ),
        ),
        (
            RefusedCipher,
            (
                r"openvpn (client|server) of tunnel 0 on \w+ runs with cipher 'AES-128-GCM', "
                r"the study asks for 'AES-256-GCM'"
            ),
        ),
        (
            NoSuchProgram,
            (
                r"openvpn server of tunnel 0 on server ended with status \d+ before it could "
                r"bind its port: .*tm-no-such-openvpn: No such file or directory"
            ),
        ),
        (
            WrongKey,
            (
                r"wireguard client of tunnel 0 on client: wg shows no handshake \(ping: \d+ "
                r"packets transmitted, 0 received.*\); last messages of the client: .+; "
                r"of the server: .+"
            ),
        ),
    ],
)
def test_what_goes_wrong_is_reported_in_the_program_s_own_words(
    lab_of: LabOf, monkeypatch: pytest.MonkeyPatch, driver: type[Tunnel], words: str
) -> None:
    monkeypatch.setattr(wireguard, "_HANDSHAKE_LIMIT_S", 3.0)
    tunnel = driven(driver.kind, NO_PARAMS, driver)
    lab = lab_of(tunnel)
    try:
        with pytest.raises((TunnelError, LabError)) as caught:
            tunnel.up(lab.site)
    finally:
        tunnel.down()
    assert re.fullmatch(words, str(caught.value)), caught.value
    nothing_stays(lab)
