"""PPTP: pptpd and pptp-linux, MS-CHAPv2, MPPE or none; GRE in user space, PPP in the kernel."""

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer
from tunnelmark.model.tunnel import Negotiated, Side, Site, TunnelUp, WireRule
from tunnelmark.tunnels.addressing import check_inner_mtu
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.ppp.call import LOG_LINES, Call, PppTunnel
from tunnelmark.tunnels.ppp.check import MPPE_CIPHERS, negotiated
from tunnelmark.tunnels.ppp.log import last_words
from tunnelmark.tunnels.ppp.pppd import Compression, Mppe, PppAccount, PppEnd, PppFraming, PppSetup
from tunnelmark.tunnels.protocols import GRE, TCP
from tunnelmark.tunnels.support import (
    inner_interface,
    wait_until,
)

PORT: Final = 1723
"""TCP port of the control connections (RFC 2637 section 1.2)."""

_START_LIMIT_S: Final = 20.0
# pptpd starts this as its pppd, with "server:client" of the call among its arguments, and takes the
# addresses in the order of its configuration: so each call finds its own options.
_PPPD_OF_A_CALL: Final = b"""\
#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
for word; do
  case $word in
    *.*:*.*) exec PPPD "$@" file "${0%/*}/call-$word" ;;
  esac
done
echo "pptpd named no addresses" >&2
exit 1
"""


class PptpParams(TunnelParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field("ipv4", description="IP version outside; IPv4 only so far")
    mppe: Mppe = Field(
        "128-stateless",
        description="encryption inside PPP; pppd on both ends always agrees on stateless, so that "
        "128-stateful is refused with what was agreed; none leaves everything readable",
    )
    compression: Compression = Field(
        "none",
        description="compression of PPP, only without MPPE: the stand-in for MPPC, which Linux "
        "does not have",
    )
    mtu_bytes: int = Field(
        1400,
        ge=128,
        le=16000,
        description="MTU of the inner interface; 1400 is common for servers, 1459 is the "
        "longest that fits 1500 outside with MPPE and an acknowledgement",
    )

    reorder: bool = Field(
        True,
        description="the client holds packets back behind a missing one, for 0.3 s at most, as is "
        "the default of its program; false passes each on at once. pptpd always holds them back, "
        "so that one loss stalls an upload",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "PptpParams":
        if self.mppe != "none" and self.compression != "none":
            raise ValueError(
                f"compression is {self.compression} with mppe {self.mppe}: pppd does one of both, "
                "set mppe to none or compression to none"
            )
        return self


class _Call(Call):
    """One end of one tunnel; the client's process is its pppd, the server's pptpd."""

    kind: ClassVar[str] = "pptp"


class PptpTunnel(PppTunnel):
    """One pptpd with ``count`` calls; each call has a control connection and a client of its own.

    With ``clients`` each of these is on a host of its own, and the server has one inner address.
    RFC 2637 section 2 wants one control connection for each pair of hosts with many calls inside;
    pptpd takes one call a connection, so n tunnels between two addresses are n connections, and
    each program reads the packets of all and drops those of other calls. Between a gateway and its
    clients each program has the packets of its own client alone.
    """

    kind: ClassVar[str] = "pptp"
    title: ClassVar[str] = "PPTP"
    params_type: ClassVar[type[TunnelParams]] = PptpParams
    gateway: ClassVar[bool] = True
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({"pppd": "pppd", "pptpd": "pptpd"})
    params: PptpParams
    # Its GRE has no ports: a NAT must read the control connection to know whose a call is.
    nat_of_lab: ClassVar[bool] = True

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._framing = PppFraming(0, 1, self.params.mppe != "none")

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need both programs on both hosts, PPP, and what encrypts or compresses."""
        features = (*pppd.KERNEL[self.params.mppe], *pppd.KERNEL[self.params.compression])
        return Need(
            programs={
                **pppd.PROGRAMS,
                "pptpd": "pptpd",
                "pptp": "pptp-linux",
                "ping": "iputils-ping",
                "ss": "iproute2",
            },
            kernel=tuple(dict.fromkeys(features)),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start the server, call it from each client, check what both ends say was agreed."""
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        if site.nat_ipv4 is not None and "pptp" not in site.nat_helpers:
            raise RefusedError(
                "pptp: the router's NAT cannot follow its GRE, the kernel lacks nf_nat_pptp"
            )
        numbers = range(self.params.paths)
        accounts = [pppd.new_account(f"{site.prefix}-{number}") for number in numbers]
        server = self._start_server(site, accounts)
        ends = []
        for number, account in enumerate(accounts):
            client = self._call(site, number, account)
            answer = self._setup(site, "server", number)
            # pptpd gives addresses in the order of calls: the next one waits for this one.
            call = _Call("server", number, site.server, PppEnd(site.server.host, answer), server)
            self._calls.append(call)
            self._wait([client, call], "be answered", lambda end: bool(end.ppp.log()))
            ends.append((client, call))
        paths, agreed = [], []
        for client, call in ends:
            paths.append(self._settle(site, client, call))
            agreed.append(self._negotiated(client))
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(agreed),
            wire=WireRule(
                encrypted=self.params.mppe != "none",
                describe=f"GRE, or TCP to or from port {PORT}",
                ip_protocols=(GRE, TCP),
                tcp_ports=(PORT,),
                compresses=self.params.compression != "none",
            ),
            processes=(
                *((client.endpoint.host.name, client.process) for client, _ in ends),
                (site.server.host.name, server),
            ),
        )

    @property
    def packet_cipher(self) -> str | None:
        """Of MPPE; None: nothing encrypts."""
        return MPPE_CIPHERS.get(self.params.mppe)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a data packet that no acknowledgement rides on.

        Every packet may carry 4 bytes more, which acknowledge what came the other way.
        """
        gre = (
            Layer("GRE header", 8, "RFC 2637 section 4.1: flags, type, length, call"),
            Layer("GRE sequence number", 4, "RFC 2637 section 4.1"),
        )
        return Encapsulation(
            lambda _inner_bytes: (ip_layer(4), *gre, *self._framing.layers()), agreed.mtu_bytes
        )

    def _start_server(self, site: Site, accounts: list[PppAccount]) -> Process:
        host, folder = site.server.host, self._folder(site.server.host, "server")
        addresses = [site.inner_ipv4(number) for number in range(len(accounts))]
        pppd.put_etc(host, folder / "etc", accounts)
        for number, account in enumerate(accounts):
            client, server = addresses[number]
            setup = self._setup(site, "server", number)
            pppd.put_options(host, folder / f"call-{server}:{client}", setup, account)
        # As at the client: what the study gives, or what is on the PATH.
        pppd_path = shlex.quote(host.has("pppd") or "pppd")
        script = _PPPD_OF_A_CALL.replace(b"PPPD", pppd_path.encode())
        host.put(folder / "pppd-of-a-call", script, mode=0o700)
        lines = [
            f"ppp {folder / 'pppd-of-a-call'}",
            f"listen {site.server.ipv4}",
            *address_lines(addresses),
            f"connections {len(accounts)}",
            "pidfile /run/pptpd.pid",
            "",
        ]
        host.put(folder / "pptpd.conf", "\n".join(lines).encode())
        daemon = host.spawn(
            pppd.in_own_etc(
                folder / "etc", ["pptpd", "--fg", "--conf", str(folder / "pptpd.conf")]
            ),
            name=unique_name("pptpd"),
            private_dirs=("/run",),
        )
        self._server = daemon

        def ready() -> bool | None:
            if (status := daemon.poll()) is not None:
                words = last_words(daemon.log_tail(LOG_LINES))
                raise TunnelError(
                    f"pptpd on {host.name} ended with status {status} at its start: {words}"
                )
            listening = host.run(["ss", "-Hltn", "sport", "=", f":{PORT}"]).text()
            return True if listening.strip() else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.05,
            late=lambda: (
                f"pptpd on {host.name} does not listen on port {PORT} after {_START_LIMIT_S:g} s: "
                f"{last_words(daemon.log_tail(LOG_LINES))}"
            ),
        )
        return daemon

    def _call(self, site: Site, number: int, account: PppAccount) -> _Call:
        endpoint = site.client_of(number)
        host, folder = endpoint.host, self._folder(endpoint.host, f"client-{number}")
        setup = self._setup(site, "client", number)
        pppd.put_etc(host, folder / "etc", [])
        pppd.put_options(host, folder / "options", setup, account)
        process = host.spawn(
            pppd.in_own_etc(folder / "etc", ["pppd", "file", str(folder / "options")]),
            name=unique_name(f"pptp-client-{number}"),
            # pptp keeps a socket for each server in /run: two calls would share a connection.
            private_dirs=("/run",),
        )
        call = _Call("client", number, endpoint, PppEnd(host, setup), process)
        self._calls.append(call)
        return call

    def _setup(self, site: Site, side: Side, number: int) -> PppSetup:
        endpoint = site.client_of(number) if side == "client" else site.server
        client, server = site.inner_ipv4(number)
        order = "" if self.params.reorder else " --nobuffer"
        pptp = f"pptp {site.server.ipv4} --nolaunchpppd{order} --nohostroute"
        return PppSetup(
            side=side,
            interface=inner_interface(site, "p", number, side),
            mtu_bytes=self.params.mtu_bytes,
            log=self._folder(endpoint.host, side) / f"pppd-{number}.log",
            mppe=self.params.mppe,
            ipv6=self.params.inner == "ipv6",
            compression=self.params.compression,
            more=("nodetach", f"{client}:{server}", f'pty "{pptp}"') if side == "client" else (),
        )

    def _negotiated(self, client: _Call) -> Negotiated:
        report = client.ppp.report()
        self._framing = pppd.framing(report)
        programs = [
            _version(client.endpoint.host, ["pptp", "--version"], "pptp-linux"),
            _version(client.endpoint.host, ["pptpd", "--version"], "pptpd"),
        ]
        return negotiated(
            client.ppp,
            report,
            programs=programs,
            carried_by="PPP in the kernel, GRE in user space (pptp, pptpctrl)",
        )


def address_lines(addresses: Sequence[tuple[str, str]]) -> list[str]:
    """Return pptpd's lines of (client, server) addresses inside, in the order of the calls.

    Those of a gateway's clients follow each other and are written as a range, and its own once for
    all: pptpd keeps 1023 characters of a line (``MAX_CONFIG_STRING_SIZE`` of its configfile.h).
    """
    servers = dict.fromkeys(server for _, server in addresses)
    clients = [client for client, _ in addresses]
    if len(servers) == 1 < len(clients):
        clients = [f"{clients[0]}-{clients[-1].rpartition('.')[2]}"]
    return [f"localip {','.join(servers)}", f"remoteip {','.join(clients)}"]


def _version(host: Host, argv: list[str], name: str) -> str:
    done = host.run(argv, check=False)
    words = (done.text() + done.stderr.decode("utf-8", "replace")).split()
    return f"{name} {words[-1].lstrip('v')}" if words else f"{name} of unknown version"
