"""SoftEther VPN Server as the server of SSTP: a hub for each tunnel, whose tap device is its end.

SoftEther's PPP takes an address that the client asks for, but only where a DHCP server in the hub
tells the rest of the network. That is the virtual DHCP of SecureNAT here, whose NAT is off: it sees
nothing of the traffic, which goes from the client's session to the tap device.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.daemon import Daemon, configure, rename
from tunnelmark.tunnels.pki import Identity
from tunnelmark.tunnels.ppp.pppd import PppAccount, PppFraming, new_account
from tunnelmark.tunnels.softether.log import (
    Status,
    answers_sstp,
    last_words,
    read_status,
    server_version,
    sstp_session,
)
from tunnelmark.tunnels.softether.program import (
    SERVER,
    START_LIMIT_S,
    USER,
    SoftEtherProgram,
    TlsVersion,
    hub_commands,
    server_config,
)
from tunnelmark.tunnels.support import inner_interface

FRAMING: Final = PppFraming(2, 2, mppe=False)
"""SoftEther rejects both ways to shorten it (RFC 1661 sections 6.5 and 6.6)."""
MOST_MTU_BYTES: Final = 1500
"""PPP_MRU_MAX of SoftEther Cedar/Proto_PPP.h."""
TOO_OLD: Final = (
    "SoftEther VPN 5.01 Build 9674, which Debian has, answers no SSTP call: its source of August "
    "2020 has a mistake there, corrected in December 2020"
)
REMEDY: Final = 'give a newer one: program = { vpnserver = "/path/of/vpnserver" }'

_MASK: Final = "255.255.0.0"
_NAMES: Final = "/DNS:none /DNS2:none /DOMAIN:none /LOG:no"


def account(number: int) -> PppAccount:
    """Return the user of a tunnel's hub, by the name that SoftEther's PPP finds the hub with."""
    return new_account(f"{USER}@{_hub(number)}")


def dhcp_address(site: Site, number: int) -> str:
    """Return the address that SoftEther says is its own: that of the hub's virtual DHCP.

    It cannot be the tap device's, since both answer for theirs in the hub.
    """
    return str(max(IPv4Address(address) for address in site.inner_ipv4(number)) + 1)


class SoftEtherHubs:
    """A vpnserver with a hub for each tunnel."""

    def __init__(self, site: Site, port: int, tls: TlsVersion) -> None:
        """Take where it runs; nothing is started yet."""
        host = site.server.host
        folder = host.work_dir / unique_name("sstp-softether")
        self.ends: list[Daemon] = []
        """Tap devices that are up, one for each tunnel."""
        self._site = site
        self._program = SoftEtherProgram(host, folder, "server", port)
        self._tls = tls

    def start(self) -> Process:
        """Start the server; ``set_up`` waits for it."""
        return self._program.start(server_config(self._program.port, self._tls))

    def set_up(self, process: Process, identity: Identity, accounts: Sequence[PppAccount]) -> None:
        """Wait for the server; give it its certificate, and each tunnel a hub with its user."""
        program = self._program
        program.await_port(process, "sstp server")
        version = server_version(program.command(["ServerInfoGet"]))
        if not answers_sstp(version):
            raise RefusedError(f"{SERVER} on {program.host.name}: {TOO_OLD}; {REMEDY}")
        certificate, key = program.folder / "server.crt", program.folder / "server.key"
        program.host.put(certificate, identity.certificate)
        program.host.put(key, identity.key)
        lines = [f"ServerCertSet /LOADCERT:{certificate} /LOADKEY:{key}"]
        for number, one in enumerate(accounts):
            lines += self._hub_with_dhcp(number, one)
        program.command(lines)
        program.check_configuration()

    def settle(self, process: Process, number: int, mtu_bytes: int) -> Daemon:
        """Give the tap device of a hub the server's inner address; return it as an end."""
        site = self._site
        end = Daemon(
            f"sstp server of tunnel {number}",
            site.server,
            inner_interface(site, "s", number, "server"),
            process,
            lambda log: last_words(f"{log}\n{self._program.logs()}"),
        )
        rename(end, f"tap_{self._device(number)}", limit_s=START_LIMIT_S)
        client, server = site.inner_ipv4(number)
        configure(end, here=server, there=client, mtu_bytes=mtu_bytes)
        self.ends.append(end)
        return end

    def agreed(self, number: int) -> Status:
        """Return what the server says of a tunnel's session; raise if the study asks otherwise."""
        where = f"sstp server of tunnel {number} on {self._program.host.name}"
        hub = f"Hub {_hub(number)}"
        session = sstp_session(self._program.command([hub, "SessionList"]))
        if session is None:
            raise RefusedError(f"{where} has no session of SSTP")
        status = read_status(self._program.command([hub, f"SessionGet {session}"]))
        suite = status.suite or "no encryption"
        # Names of OpenSSL: only suites of TLS 1.3 begin so (RFC 8446 appendix B.4).
        is_newest = suite.startswith("TLS_")
        if (
            "GCM" not in suite
            or is_newest != (self._tls == "1.3")
            or status.compressed is not False
        ):
            compressed = "" if status.compressed is False else " and compression"
            raise RefusedError(
                f"{where} runs with {suite}{compressed}, the study asks for AES-GCM of TLS "
                f"{self._tls}"
            )
        return status

    def _hub_with_dhcp(self, number: int, one: PppAccount) -> list[str]:
        client, _ = self._site.inner_ipv4(number)
        device = self._device(number)
        return [
            *hub_commands(_hub(number), device=device, password=one.password),
            f"SecureNatHostSet /MAC:none /IP:{dhcp_address(self._site, number)} /MASK:{_MASK}",
            "NatDisable",
            f"DhcpSet /START:{client} /END:{client} /MASK:{_MASK} /EXPIRE:7200 /GW:none {_NAMES}",
            "SecureNatEnable",
        ]

    def _device(self, number: int) -> str:
        return f"{self._site.prefix}s{number}"


def _hub(number: int) -> str:
    return f"t{number}"
