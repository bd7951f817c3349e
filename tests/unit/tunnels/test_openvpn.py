"""The OpenVPN driver against a host that answers as OpenVPN does, or as it should not."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import DataPath, Site
from tunnelmark.tunnels.openvpn import OpenVpnParams, OpenVpnTunnel


def log_of(argv: tuple[str, ...], **changed: str) -> str:
    """Return what OpenVPN 2.6.14 would have logged, from its own arguments."""
    option = {name: argv[at + 1] for at, name in enumerate(argv[:-1]) if name.startswith("--")}
    cipher = changed.get("cipher", option["--cipher"])
    auth = "" if "GCM" in cipher or "POLY" in cipher else f" auth '{option['--auth']}',"
    lzo = ", compression: 'lzo'" if "--comp-lzo" in argv else ""
    return "\n".join(
        [
            "2026-11-21 05:00:01 OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)] [LZO]",
            (
                "2026-11-21 05:00:01 net_iface_mtu_set: mtu "
                f"{changed.get('mtu', option['--tun-mtu'])} for {option['--dev']}"
            ),
            *_socket_lines(argv),
            *_control_lines(argv),
            "2026-11-21 05:00:02 Initialization Sequence Completed",
            (
                f"2026-11-21 05:00:02 Data Channel: cipher '{cipher}',{auth} peer-id: 0"
                f"{changed.get('compression', lzo)}"
            ),
        ]
    )


def _socket_lines(argv: tuple[str, ...]) -> list[str]:
    if "udp4" in argv:
        return [
            "2026-11-21 05:00:01 UDPv4 link local (bound): [AF_INET]198.18.0.2:1194",
            "2026-11-21 05:00:01 UDPv4 link remote: [AF_UNSPEC]",
        ]
    side = "SERVER" if "tcp4-server" in argv else "CLIENT"
    return [
        "2026-11-21 05:00:01 Listening for incoming TCP connection on [AF_INET]198.18.0.2:1194",
        f"2026-11-21 05:00:01 TCPv4_{side} link remote: [AF_INET]198.18.0.1:46166",
    ]


def _control_lines(argv: tuple[str, ...]) -> list[str]:
    crypt = (
        "2026-11-21 05:00:01 Outgoing Control Channel Encryption: Cipher 'AES-256-CTR' initialized "
        "with 256 bit key"
    )
    tls = "2026-11-21 05:00:01 Control Channel: TLSv1.3, cipher TLSv1.3 TLS_AES_256_GCM_SHA384"
    return [crypt] * ("--tls-crypt" in argv) + [tls] * ("--secret" not in argv)


class Machine:
    """Both hosts: OpenVPN that logs, `ip` that shows the interfaces, ping that is answered."""

    def __init__(self, hosts: Any, **changed: str) -> None:
        self.hosts = hosts
        self.changed = changed
        self.order: list[str] = []
        self.ping = (0, "")
        for host in hosts:
            host.started = self.start
            host.answer = lambda argv, _stdin, host=host: self.answer(host, argv)

    def start(self, process: Any) -> None:
        self.order.append(process.name.rpartition("-")[0])
        here = self.changed if process.name.startswith("openvpn-client") else {}
        process.log = log_of(process.argv, **here)

    def answer(self, host: Any, argv: tuple[str, ...]) -> tuple[int, str]:
        if argv[:3] == ("ip", "-j", "link"):
            links = [
                {
                    "ifname": p.argv[p.argv.index("--dev") + 1],
                    "mtu": int(p.argv[p.argv.index("--tun-mtu") + 1]),
                    "flags": ["POINTOPOINT", "UP"],
                }
                for p in host.spawned
                if p.status is None
            ]
            return 0, json.dumps(links)
        return self.ping if argv[0] == "ping" else (0, "")


def tunnel(**params: object) -> OpenVpnTunnel:
    return OpenVpnTunnel(OpenVpnParams.model_validate(params))


def test_nothing_is_tuned_that_the_study_does_not_ask_for(hosts: Any, site: Site) -> None:
    """Buffers of 4 MiB and a longer queue hid losses that every other OpenVPN has."""
    tuned = {"--mssfix", "--sndbuf", "--rcvbuf", "--txqueuelen", "--fragment", "--ping"}
    Machine(hosts)
    tunnel().up(site)
    for process in (*hosts[0].spawned, *hosts[1].spawned):
        assert not tuned & set(process.argv)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"mssfix": "off"}, ["--mssfix", "0"]),
        ({"mssfix": 1300}, ["--mssfix", "1300"]),
        ({"sndbuf": "1 MiB", "rcvbuf": "2 MiB"}, ["--sndbuf", "1048576", "--rcvbuf", "2097152"]),
        ({"txqueuelen": 1000}, ["--txqueuelen", "1000"]),
        ({"fragment": 1300}, ["--fragment", "1300"]),
        ({"keepalive": "10 s"}, ["--ping", "10", "--ping-exit", "60"]),
    ],
)
def test_what_the_study_sets_is_given_to_both_ends(
    hosts: Any, site: Site, params: dict[str, object], words: list[str]
) -> None:
    Machine(hosts)
    tunnel(**params).up(site)
    for process in (*hosts[0].spawned, *hosts[1].spawned):
        start = process.argv.index(words[0])
        assert list(process.argv[start : start + len(words)]) == words


def test_three_tunnels_have_ports_networks_and_names_of_their_own(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)
    driver = tunnel(count=3, cipher="AES-256-CBC")
    up = driver.up(site)
    assert [path.name for path in up.paths] == ["0", "1", "2"]
    assert [path.server_address for path in up.paths] == ["198.19.0.2", "198.19.0.6", "198.19.0.10"]
    assert up.wire.udp_ports == (1194, 1195, 1196)
    assert up.wire.describe == "UDP to or from port 1194 to 1196"
    names = [path.client_interface for path in up.paths] + [p.server_interface for p in up.paths]
    assert len(set(names)) == 6
    assert all(name.startswith("tmabcde") and len(name) <= 15 for name in names)
    assert [n.cipher for n in up.negotiated] == ["AES-256-CBC"] * 3
    assert {n.data_path for n in up.negotiated} == {DataPath.USER_SPACE}
    assert up.negotiated[0].details["auth"] == "SHA256"
    # Every server is bound before any client sends its first packet.
    assert machine.order == [f"openvpn-{s}-{n}" for s in ("server", "client") for n in range(3)]
    assert [host for host, _ in up.processes] == ["server"] * 3 + ["client"] * 3
    assert driver.problem() is None
    driver.down()
    driver.down()
    assert all(process.stopped == 1 for host in hosts for process in host.spawned)


def test_an_offloaded_data_path_is_the_kernel_s(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)

    def start(process: Any) -> None:
        machine.start(process)
        process.log += "\n2026-11-21 05:00:01 DCO device tun0 opened"

    for host in hosts:
        host.started = start
    up = tunnel(offload="kernel").up(site)
    assert up.negotiated[0].implementation == "openvpn"
    assert up.negotiated[0].data_path is DataPath.KERNEL


def test_sixty_four_tunnels_still_have_names_the_kernel_takes(hosts: Any, site: Site) -> None:
    Machine(hosts)
    up = tunnel(count=64).up(site)
    names = {name for path in up.paths for name in (path.client_interface, path.server_interface)}
    assert len(names) == 128
    assert max(map(len, names)) <= 15


def test_keys_are_readable_by_the_owner_only_and_stand_on_no_command_line(
    hosts: Any, site: Site
) -> None:
    Machine(hosts)
    tunnel().up(site)
    for host in hosts:
        keys = {p: v for p, v in host.files.items() if b"PRIVATE KEY" in v[0]}
        assert [path.name for path in keys] == [f"{host.name}.key"]
        assert all(path.is_relative_to(host.work_dir) for path in host.files)
        assert {mode for _, mode in keys.values()} == {0o600}
        lines = " ".join(" ".join(p.argv) for p in host.spawned)
        assert "PRIVATE" not in lines
    # The authority's own key was never written: its certificate is, and both ends have the same.
    written = [
        data for host in hosts for path, (data, _) in host.files.items() if "ca" in path.name
    ]
    assert len(written) == 2
    assert len(set(written)) == 1
    assert all(b"PRIVATE" not in data for data in written)


@pytest.mark.parametrize(
    ("params", "changed", "message"),
    [
        (
            {},
            {"cipher": "none"},
            (
                "openvpn client of tunnel 0 on client runs with cipher 'none', "
                "the study asks for 'AES-256-GCM'"
            ),
        ),
        (
            {"compression": "lzo"},
            {"compression": ""},
            (
                "openvpn client of tunnel 0 on client runs with compression 'none', "
                "the study asks for 'lzo'"
            ),
        ),
        (
            {"mtu_bytes": 1400},
            {"mtu": "1500"},
            "openvpn client of tunnel 0 on client runs with MTU 1500, the study asks for 1400",
        ),
    ],
)
def test_what_was_not_asked_for_is_refused(
    hosts: Any, site: Site, params: dict[str, object], changed: dict[str, str], message: str
) -> None:
    Machine(hosts, **changed)
    driver = tunnel(**params)
    with pytest.raises(TunnelError) as caught:
        driver.up(site)
    assert str(caught.value) == message
    driver.down()
    assert all(process.stopped for host in hosts for process in host.spawned)


def test_a_server_that_ends_is_named_with_its_last_words(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)

    def start(process: Any) -> None:
        process.log = (
            "TCP/UDP: Socket bind failed on local address: Address already in use (errno=98)\n"
            "Exiting due to fatal error\n"
        )
        process.status = 1

    hosts[1].started = start
    driver = tunnel()
    with pytest.raises(TunnelError) as caught:
        driver.up(site)
    assert str(caught.value) == (
        "openvpn server of tunnel 0 on server ended with status 1 before it could bind its port: "
        "TCP/UDP: Socket bind failed on local address: Address already in use (errno=98)"
    )
    assert machine.order == []  # no client was started
    driver.down()


def test_no_echo_through_the_tunnel_is_an_error(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)
    machine.ping = (1, "5 packets transmitted, 0 received, 100% packet loss, time 1000ms\n")
    with pytest.raises(
        TunnelError, match=r"no echo through openvpn tunnel 0 within 15 s: 5 packets"
    ):
        tunnel().up(site)


def test_a_problem_names_the_daemon_or_the_interface(hosts: Any, site: Site) -> None:
    Machine(hosts)
    driver = tunnel()
    driver.up(site)
    server = hosts[1].spawned[0]
    hosts[1].answer = lambda _argv, _stdin: (0, "[]")
    assert driver.problem() == "interface tmabcdeo0s on server vanished"
    down = json.dumps([{"ifname": "tmabcdeo0s", "mtu": 1500, "flags": []}])
    hosts[1].answer = lambda _argv, _stdin: (0, down)
    assert driver.problem() == "interface tmabcdeo0s on server is down"
    server.status, server.log = -9, "write to TUN/TAP : Input/output error (code=5)"
    assert driver.problem() == (
        f"{server.name} on server ended with status -9: "
        "write to TUN/TAP : Input/output error (code=5)"
    )


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("cipher", ["BF-CBC", "AES-128-CBC", "CHACHA20-POLY1305"])
def test_only_the_cipher_of_the_study_is_offered(cipher: str, side: Any) -> None:
    options = tunnel(cipher=cipher)._arguments(side)
    for name in ("--cipher", "--data-ciphers", "--data-ciphers-fallback"):
        assert options[options.index(name) + 1] == cipher
    assert ("--providers" in options) == (cipher == "BF-CBC")


def test_no_script_and_no_renegotiation(hosts: Any, site: Site) -> None:
    Machine(hosts)
    tunnel().up(site)
    for process in (p for host in hosts for p in host.spawned):
        line = " ".join(process.argv)
        for wanted in ("--script-security 1", "--reneg-sec 0", "--reneg-bytes 0", "--disable-dco"):
            assert wanted in line
        assert not re.search(r"--(up|down|plugin|route-up|auth-user-pass)\b", line)


@pytest.mark.parametrize(
    "params",
    [
        {"cipher": "none"},
        {"cipher": "AES-256-GCM:none"},
        {"compression": "lz4"},
        {"count": 0},
        {"count": 65},
        {"mtu_bytes": 99},
        {"mtu_bytes": 65536},
        {"tun_mtu": 1500},
    ],
)
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OpenVpnParams.model_validate(params)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"key_exchange": "static"}, "AES-256-GCM needs key_exchange tls"),
        (
            {"key_exchange": "static", "cipher": "BF-CBC", "control": "tls-crypt"},
            "static has neither tls-crypt nor the kernel offload",
        ),
        ({"offload": "kernel", "cipher": "BF-CBC"}, "offload kernel needs an AES-GCM cipher"),
        ({"fragment": 1300, "transport": "tcp"}, "fragment is for transport udp without offload"),
        ({"keepalive": "1500 ms"}, "keepalive has a part of a second"),
        ({"offload": "kernel", "compression": "lzo"}, "and no compression"),
    ],
)
def test_what_openvpn_would_refuse_is_refused_before_anything_is_made(
    params: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        OpenVpnParams.model_validate(params)


def test_a_static_key_is_one_secret_used_in_both_directions(hosts: Any, site: Site) -> None:
    Machine(hosts)
    up = tunnel(key_exchange="static", cipher="AES-256-CBC").up(site)
    secrets = [
        value for host in hosts for path, value in host.files.items() if path.name == "secret.key"
    ]
    assert secrets[0] == secrets[1]
    assert secrets[0][1] == 0o600
    lines = secrets[0][0].decode().splitlines()
    assert lines[0] == "-----BEGIN OpenVPN Static key V1-----"
    assert re.fullmatch("[0-9a-f]{512}", "".join(lines[1:-1]))
    directions = [p.argv[p.argv.index("--secret") + 2] for host in hosts for p in host.spawned]
    assert directions == ["1", "0"]
    assert up.negotiated[0].details["key_exchange"] == "static"


def test_ends_without_a_handshake_are_woken_by_a_packet(
    hosts: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.tunnels.openvpn.driver._START_LIMIT_S", 0.0)
    monkeypatch.setattr("tunnelmark.tunnels.openvpn.driver._START_LIMIT_PER_TUNNEL_S", 0.1)
    machine = Machine(hosts)
    started, done = machine.start, "Initialization Sequence Completed"

    def start(process: Any) -> None:
        started(process)
        process.log = process.log.replace(done, "waiting for the other end")

    def answer(host: Any, argv: tuple[str, ...]) -> tuple[int, str]:
        if argv[0] == "ping":
            for process in (p for one in hosts for p in one.spawned):
                process.log = process.log.replace("waiting for the other end", done)
        return machine.answer(host, argv)

    for host in hosts:
        host.started = start
        host.answer = lambda argv, _stdin, host=host: answer(host, argv)
    assert tunnel(key_exchange="static", cipher="AES-256-CBC").up(site).paths
    with pytest.raises(TunnelError, match="did not agree on keys"):
        tunnel().up(site)  # where there is a handshake, the ends need no help


def test_another_static_key_is_reported_as_soon_as_openvpn_says_so(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)
    started = machine.start

    def start(process: Any) -> None:
        started(process)
        process.log += (
            "\n2026-11-21 05:00:03 Authenticate/Decrypt packet error: packet HMAC authentication "
            "failed"
        )

    for host in hosts:
        host.started = start
    with pytest.raises(
        TunnelError, match=r"its peer has another secret: .* HMAC authentication failed"
    ):
        tunnel(key_exchange="static", cipher="AES-256-CBC").up(site)


def test_a_program_that_leaves_tls_crypt_out_is_found_out(hosts: Any, site: Site) -> None:
    machine = Machine(hosts)
    started = machine.start

    def start(process: Any) -> None:
        started(process)
        process.log = "\n".join(
            line for line in process.log.splitlines() if "Encryption" not in line
        )

    for host in hosts:
        host.started = start
    with pytest.raises(TunnelError, match="runs with tls-crypt False, the study asks for True"):
        tunnel(control="tls-crypt").up(site)


def test_over_tcp_the_rule_is_tcp(hosts: Any, site: Site) -> None:
    Machine(hosts)
    driver = tunnel(transport="tcp", count=2)
    up = driver.up(site)
    assert up.wire.ip_protocols == (6,)
    assert (up.wire.tcp_ports, up.wire.udp_ports) == ((1194, 1195), ())
    assert up.wire.describe == "TCP to or from port 1194 to 1195"
    assert driver.encapsulation(up.negotiated[0]).stream
