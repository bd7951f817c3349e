"""SSTP: sstp-client against a server of our own (sstp_server.py); PPP in TLS in TCP."""

import json
from datetime import UTC, datetime
from importlib import resources
from pathlib import PurePosixPath
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer
from tunnelmark.model.tunnel import (
    CipherLibrary,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels import ppp, sstp_log
from tunnelmark.tunnels.addressing import check_inner_mtu, client_ends
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.ppp import Compression, PppAccount, PppEnd, PppFraming, PppSetup
from tunnelmark.tunnels.ppp_call import LOG_LINES, Call, PppTunnel
from tunnelmark.tunnels.ppp_check import negotiated
from tunnelmark.tunnels.protocols import TCP
from tunnelmark.tunnels.support import (
    inner_interface,
    wait_until,
)

PORT: Final = 443
"""MS-SSTP section 2.1."""

_START_LIMIT_S: Final = 30.0
_PLUGIN: Final = "sstp-pppd-plugin.so"
# sstpc gives up root and makes its socket in a directory that must be its user's own; /run is a
# private copy of the client's.
_WITH_SSTPC_DIRECTORY: Final = 'mkdir -p -m 755 /run/sstpc && chown sstpc /run/sstpc && exec "$@"'
_TLS_OVERHEAD: Final[dict[str, tuple[Layer, ...]]] = {
    "1.3": (
        Layer("TLS record header", 5, "RFC 8446 section 5.1"),
        Layer("TLS content type and tag", 17, "RFC 8446 section 5.2"),
    ),
    "1.2": (
        Layer("TLS record header", 5, "RFC 5246 section 6.2.1"),
        Layer("TLS nonce and tag", 24, "RFC 5288 section 3"),
    ),
}


class SstpParams(TunnelParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field("ipv4", description="IP version outside; IPv4 only so far")
    tls: Literal["1.2", "1.3"] = Field(
        "1.3",
        description="version of TLS; both with AES-GCM, in whichever suite the ends agree on",
    )
    compression: Compression = Field("none", description="compression of PPP inside TLS")
    mtu_bytes: int = Field(
        1400,
        ge=128,
        le=4000,
        description="MTU of the inner interface; with TLS 1.3, 1420 is the longest that fits one "
        "segment of 1500",
    )


class _Call(Call):
    """One end of one tunnel; the client's process is its pppd, which starts sstpc."""

    kind: ClassVar[str] = "sstp"

    def last_words(self) -> str:
        """Return what says best what went wrong: TLS and SSTP before PPP, which only hangs up."""
        own = self.process.log_tail(LOG_LINES)
        return sstp_log.last_words(self.ppp.log(), own, self.number)


class SstpTunnel(PppTunnel):
    """One server process with ``count`` calls; each call has a connection of its own.

    With ``clients`` each client is on a host of its own, and the server has one inner address.
    """

    kind: ClassVar[str] = "sstp"
    title: ClassVar[str] = "SSTP"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = SstpParams
    gateway: ClassVar[bool] = True
    params: SstpParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._framing = PppFraming(0, 1, mppe=False)

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need sstpc, a Python for the server, PPP, and what compresses."""
        features = ("ppp", *ppp.KERNEL[self.params.compression])
        return Need(
            programs={
                **ppp.PROGRAMS,
                "sstpc": "sstp-client",
                "python3": "python3",
                "ping": "iputils-ping",
            },
            kernel=tuple(dict.fromkeys(features)),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start the server, call it from each client, check what both ends say was agreed."""
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        numbers = range(self.params.paths)
        accounts = [ppp.new_account(f"{site.prefix}-{number}") for number in numbers]
        server = self._start_server(site, accounts)
        ends = []
        for number, account in enumerate(accounts):
            client = self._call(site, number, account)
            answer = self._setup(site, "server", number)
            call = _Call("server", number, site.server, PppEnd(site.server.host, answer), server)
            self._calls.append(call)
            # The server gives its calls to clients in the order in which they come.
            self._wait([client, call], "be answered", lambda end: bool(end.ppp.log()))
            ends.append((client, call))
        paths, agreed = [], []
        for client, call in ends:
            paths.append(self._settle(site, client, call))
            agreed.append(self._negotiated(client, call))
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(agreed),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {PORT}",
                ip_protocols=(TCP,),
                tcp_ports=(PORT,),
                compresses=self.params.compression != "none",
            ),
            processes=(
                *((client.endpoint.host.name, client.process) for client, _ in ends),
                (site.server.host.name, server),
            ),
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a packet that finds the connection idle.

        Both programs put each packet of PPP into a packet of SSTP and a TLS record of its own.
        """
        record, protection = _TLS_OVERHEAD[self.params.tls]
        sstp = Layer("SSTP header", 4, "MS-SSTP section 2.2.1")
        layers = (ip_layer(4), tcp_layer(), record, sstp, *self._framing.layers(), protection)
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes, stream=True)

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the server's one port."""
        return (ServerPorts("tcp", PORT),)

    def _start_server(self, site: Site, accounts: list[PppAccount]) -> Process:
        host, folder = site.server.host, _folder(site.server.host, "server")
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        identity = authority.issue(site.server.advertised("ipv4"), "server")
        host.put(folder / "server.crt", identity.certificate)
        host.put(folder / "server.key", identity.key)
        for end, _ in client_ends(site):
            end.host.put(_folder(end.host, "ca.crt"), authority.certificate, mode=0o644)
        ppp.put_etc(host, folder / "etc", accounts)
        for number, account in enumerate(accounts):
            setup = self._setup(site, "server", number)
            ppp.put_options(host, folder / f"options-{number}", setup, account)
        config = {
            "listen": site.server.ipv4,
            "port": PORT,
            "certificate": str(folder / "server.crt"),
            "key": str(folder / "server.key"),
            "tls": self.params.tls,
            "calls": [
                ["pppd", "file", str(folder / f"options-{number}")]
                for number in range(len(accounts))
            ],
        }
        host.put(folder / "config.json", json.dumps(config).encode())
        program = resources.files("tunnelmark.tunnels").joinpath("sstp_server.py").read_bytes()
        host.put(folder / "sstp_server.py", program)
        daemon = host.spawn(
            ppp.in_own_etc(
                folder / "etc",
                ["python3", "-I", str(folder / "sstp_server.py"), str(folder / "config.json")],
            ),
            name=unique_name("sstp-server"),
            private_dirs=("/run",),
        )
        self._server = daemon

        def words() -> str:
            return sstp_log.last_words("", daemon.log_tail(LOG_LINES), None)

        def ready() -> bool | None:
            if (status := daemon.poll()) is not None:
                raise TunnelError(
                    f"the sstp server on {host.name} ended with status {status} at its start: "
                    f"{words()}"
                )
            return True if "listening on " in daemon.log_tail(LOG_LINES) else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.05,
            late=lambda: (
                f"the sstp server on {host.name} does not listen on port {PORT} after "
                f"{_START_LIMIT_S:g} s: {words()}"
            ),
        )
        return daemon

    def _call(self, site: Site, number: int, account: PppAccount) -> _Call:
        endpoint = site.client_of(number)
        host, folder = endpoint.host, _folder(endpoint.host, f"client-{number}")
        setup = self._setup(site, "client", number)
        ppp.put_etc(host, folder / "etc", [])
        ppp.put_options(host, folder / "options", setup, account)
        pppd = ["pppd", "file", str(folder / "options")]
        process = host.spawn(
            ppp.in_own_etc(folder / "etc", ["sh", "-c", _WITH_SSTPC_DIRECTORY, "sstpc", *pppd]),
            name=unique_name(f"sstp-client-{number}"),
            private_dirs=("/run",),
        )
        call = _Call("client", number, endpoint, PppEnd(host, setup), process)
        self._calls.append(call)
        return call

    def _setup(self, site: Site, side: Side, number: int) -> PppSetup:
        endpoint = site.client_of(number) if side == "client" else site.server
        client, server = site.inner_ipv4(number)
        name = f"{site.prefix}-{number}"
        sstpc = (
            f"sstpc --nolaunchpppd --log-stderr --log-level 3 --ipparam {name} "
            f"--ca-cert {_folder(endpoint.host, 'ca.crt')} "
            f"{site.server.advertised('ipv4')}"
        )
        more = (
            (
                *("nodetach", f"{client}:{server}", f'pty "{sstpc}"'),
                *(f"plugin {_PLUGIN}", f"sstp-sock /run/sstpc/sstpc-{name}", f"ipparam {name}"),
            )
            if side == "client"
            else ("nodetach", "local", f"{server}:{client}")
        )
        return PppSetup(
            side=side,
            interface=inner_interface(site, "s", number, side),
            mtu_bytes=self.params.mtu_bytes,
            log=_folder(endpoint.host, side) / f"pppd-{number}.log",
            compression=self.params.compression,
            ipv6=self.params.inner == "ipv6",
            more=more,
        )

    def _negotiated(self, client: _Call, server: _Call) -> Negotiated:
        tls = sstp_log.read_server_log(server.process.log_tail(LOG_LINES), server.number)
        wanted = f"TLSv{self.params.tls}"
        if tls.version != wanted or not tls.bound:
            raise RefusedError(
                f"{server.place} runs with {tls.version or 'no TLS'} and "
                f"{'a' if tls.bound else 'no'} crypto binding, the study asks for {wanted} and one"
            )
        report = client.ppp.report()
        self._framing = ppp.framing(report)
        done = client.endpoint.host.run(["sstpc", "--version"], check=False)
        version = sstp_log.version(done.text() + done.stderr.decode("utf-8", "replace"))
        agreed = negotiated(
            client.ppp,
            report,
            programs=[f"sstp-client {version}"],
            carried_by="PPP in the kernel, SSTP and TLS in user space (sstpc; our own server)",
        )
        return Negotiated(
            cipher=tls.cipher,
            version=agreed.version,
            implementation="sstpc, pppd",
            mtu_bytes=agreed.mtu_bytes,
            data_path=agreed.data_path,
            details={
                **agreed.details,
                "encryption": f"{tls.version} {tls.cipher}",
                "server": "tunnelmark's own SSTP server in Python; it compares nonce and "
                "certificate of the crypto binding, not its compound MAC",
            },
        )


def _folder(host: Host, what: str) -> PurePosixPath:
    return host.work_dir / "sstp" / what
