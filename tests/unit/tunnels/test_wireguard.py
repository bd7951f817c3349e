"""The WireGuard driver against a host on which wg, ip and ping answer as the test says."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import ValidationError

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import DataPath, Site
from tunnelmark.tunnels.wireguard.driver import WireGuardParams, WireGuardTunnel
from tunnelmark.tunnels.wireguard.end import End, new_keys

PEER = "A" * 43 + "="
VERSIONS = {
    "wg": "wireguard-tools v1.0.20210914 - https://git.zx2c4.com/\n",
    "wireguard-go": "wireguard-go v0.0.20220316\n\nUserspace\n",
    "uname": "Linux 6.12.0\n",
}


class Machine:
    """Both hosts: wg that has a handshake, `ip` that remembers the MTU, ping that is answered."""

    def __init__(self, hosts: Any) -> None:
        self.handshake = {host.name: "1700000000" for host in hosts}
        self.ping = (0, "")
        self.refuse: str | None = None
        self.mtu: dict[str, int] = {}
        for host in hosts:
            host.answer = lambda argv, _stdin, host=host: self.answer(host, argv)

    def answer(self, host: Any, argv: tuple[str, ...]) -> tuple[int, str]:
        if argv[0] == "nsenter":
            argv = argv[2:]
        if argv[:4] == ("ip", "link", "set", "dev") and "mtu" in argv:
            self.mtu[argv[4]] = int(argv[6])
        if argv[:2] == ("wg", "setconf") and self.refuse:
            return 1, self.refuse
        if argv[0] == "ss":
            return 0, self.sockets(host)
        if argv[-1] == "latest-handshakes":
            return 0, f"{PEER}\t{self.handshake[host.name]}\n"
        if argv == ("ip", "-j", "link", "show"):
            links = [{"ifname": name, "mtu": n, "flags": ["UP"]} for name, n in self.mtu.items()]
            return 0, json.dumps(links)
        return self.ping if argv[0] == "ping" else (0, VERSIONS.get(argv[0], ""))

    def sockets(self, host: Any) -> str:
        # Whoever asks for the sockets has not let wg touch the new one before.
        asked = [
            argv for argv, _ in host.ran if f"--mount=/proc/{host.spawned[-1].pid}/ns/mnt" in argv
        ]
        assert asked == []
        return "\n".join(
            f"u_str LISTEN 0 4096 /var/run/wireguard/{p.argv[-1]}.sock 123 * 0"
            for p in host.spawned
        )


def tunnel(**params: object) -> WireGuardTunnel:
    return WireGuardTunnel(WireGuardParams.model_validate(params))


@pytest.mark.parametrize(
    ("kernel", "programs", "chosen"),
    [
        ({"wireguard", "tun"}, {"wireguard-go", "boringtun-cli"}, "kernel"),
        ({"tun"}, {"wireguard-go", "boringtun-cli"}, "wireguard-go"),
        ({"tun"}, {"boringtun-cli"}, "boringtun"),
        ({"tun"}, set(), "wireguard-go"),
    ],
)
def test_auto_takes_the_kernel_then_wireguard_go_then_boringtun(
    hosts: Any, kernel: set[str], programs: set[str], chosen: str
) -> None:
    host = hosts[0]
    host.kernel, host.programs = kernel, programs
    assert tunnel()._choose(host) == chosen


def test_where_the_kernel_escapes_the_limit_auto_is_a_program(hosts: Any) -> None:
    host = hosts[0]
    host.kernel, host.programs = {"wireguard", "tun"}, {"wireguard-go"}
    for implementation, chosen in (("auto", "wireguard-go"), ("kernel", "kernel")):
        driver = tunnel(implementation=implementation)
        driver.confine()
        assert driver._choose(host) == chosen


def test_what_is_missing_comes_with_its_remedy(hosts: Any) -> None:
    host = hosts[0]
    host.programs, host.kernel = {"wg", "ip", "ping", "nsenter", "ss"}, {"tun"}
    assert tunnel().unavailable(host) == (
        "wireguard-go is not installed (apt-get install wireguard-go)"
    )
    assert tunnel(implementation="boringtun").unavailable(host) == (
        "boringtun-cli is not installed (cargo install --locked boringtun-cli)"
    )
    assert tunnel(implementation="kernel").unavailable(host) == "the kernel has no wireguard"
    host.programs -= {"wg"}
    assert tunnel().unavailable(host) == "wg is not installed (apt-get install wireguard-tools)"


def test_user_space_ends_have_a_socket_directory_of_their_own(hosts: Any, site: Site) -> None:
    Machine(hosts)
    up = tunnel(count=2).up(site)
    for host in hosts:
        assert [p.private_dirs for p in host.spawned] == [("/run",)] * 2
        for process in host.spawned:
            inside = f"--mount=/proc/{process.pid}/ns/mnt"
            assert any(argv[:3] == ("nsenter", inside, "wg") for argv, _ in host.ran)
    assert up.wire.udp_ports == (51820, 51821)
    agreed = up.negotiated[0]
    assert (agreed.implementation, agreed.version) == ("wireguard-go", "wireguard-go v0.0.20220316")
    assert agreed.data_path is DataPath.USER_SPACE
    assert agreed.details["tools"] == "wireguard-tools v1.0.20210914"
    assert (agreed.mtu_bytes, up.paths[0].mtu_bytes) == (1420, 1420)
    assert len(up.processes) == 4


def test_private_keys_go_by_standard_input_and_belong_to_the_public_ones(
    hosts: Any, site: Site
) -> None:
    Machine(hosts)
    tunnel().up(site)
    private: dict[str, str] = {}
    public: dict[str, str] = {}
    for host in hosts:
        assert host.files == {}
        (text,) = (stdin.decode() for argv, stdin in host.ran if "setconf" in argv)
        lines = dict(line.split(" = ") for line in text.splitlines() if " = " in line)
        private[host.name], public[host.name] = lines["PrivateKey"], lines["PublicKey"]
        everything = [*(argv for argv, _ in host.ran), *(p.argv for p in host.spawned)]
        assert not any(lines["PrivateKey"] in word for argv in everything for word in argv)
    for one, other in (("client", "server"), ("server", "client")):
        key = X25519PrivateKey.from_private_bytes(base64.b64decode(private[one]))
        raw = key.public_key().public_bytes_raw()
        assert base64.b64encode(raw).decode() == public[other]


def test_the_kernel_s_interfaces_are_deleted_again_also_half_up(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)
    for host in hosts:
        host.kernel = {"wireguard"}
    driver = tunnel(count=2)
    up = driver.up(site)
    assert up.processes == ()
    assert up.negotiated[0].implementation == "kernel"
    assert up.negotiated[0].data_path is DataPath.KERNEL_THREADS
    assert up.negotiated[0].version == "WireGuard of Linux 6.12.0"
    assert driver.problem() is None
    del machine.mtu["tmabcdew1s"]
    assert driver.problem() == "interface tmabcdew1s on server vanished"
    driver.down()
    for host in hosts:
        made = {argv[4] for argv, _ in host.ran if argv[:3] == ("ip", "link", "add")}
        gone = {argv[4] for argv, _ in host.ran if argv[:3] == ("ip", "link", "delete")}
        assert made == gone
        assert len(made) == 2
    machine.refuse = "Unable to modify interface: Operation not permitted"
    half = tunnel()
    with pytest.raises(TunnelError, match="wg refused the configuration: Unable to modify"):
        half.up(site)
    before = len(hosts[0].ran)
    half.down()
    assert ("ip", "link", "delete", "dev", "tmabcdew0c") in [
        argv for argv, _ in hosts[0].ran[before:]
    ]


@pytest.mark.parametrize("end", ["client", "server"])
def test_a_handshake_must_be_seen_on_both_ends(hosts: Any, site: Site, end: str) -> None:
    machine = Machine(hosts)
    machine.handshake[end] = "0"
    machine.ping = (1, "9 packets transmitted, 0 received, 100% packet loss, time 9000ms\n")
    for host in hosts:
        host.started = lambda process: setattr(
            process, "log", "DEBUG: x\nERROR: (tm) Received invalid initiation message\nDEBUG: y"
        )
    with pytest.raises(TunnelError) as caught:
        tunnel().up(site)
    other = "server" if end == "client" else "client"
    invalid = "ERROR: (tm) Received invalid initiation message"
    assert str(caught.value) == (
        f"wireguard {end} of tunnel 0 on {end}: wg shows no handshake (ping: "
        "9 packets transmitted, 0 received, 100% packet loss, time 9000ms); "
        f"last messages of the {end}: {invalid}; of the {other}: {invalid}"
    )


def test_a_daemon_that_ends_at_its_start_is_named(hosts: Any, site: Site) -> None:
    Machine(hosts)

    def start(process: Any) -> None:
        process.log = "┌──┐\n│  │\n└──┘\nERROR: (tm) Failed to create TUN device: not permitted\n"
        process.status = 1

    hosts[0].started = start
    with pytest.raises(TunnelError) as caught:
        tunnel().up(site)
    assert str(caught.value) == (
        "wireguard client of tunnel 0 on client: wireguard-go ended with status 1 at its start: "
        "ERROR: (tm) Failed to create TUN device: not permitted"
    )


@pytest.mark.parametrize(
    "params", [{"implementation": "userspace"}, {"mtu_bytes": 20}, {"count": 0}, {"port": 1}]
)
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WireGuardParams.model_validate(params)


def test_each_peer_of_a_gateway_has_a_secret_of_its_own(hosts: Any, site: Site) -> None:
    Machine(hosts)
    driver = tunnel(clients=2, psk=True)
    both = replace(site, clients=(site.client, site.client))
    clients = [End("client", n, site.client, f"c{n}", "kernel", None, new_keys()) for n in range(2)]
    server = End("server", 0, site.server, "s", "kernel", None, new_keys())
    driver._configure(both, server, *clients)
    for client in clients:
        driver._configure(both, client, server)
    reported = [
        re.findall("PresharedKey = (.*)", (stdin or b"").decode())
        for host in reversed(hosts)
        for argv, stdin in host.ran
        if "setconf" in argv
    ]
    of_gateway, *of_clients = reported
    assert len(set(of_gateway)) == 2
    assert of_clients == [[secret] for secret in of_gateway]
