"""OpenVPN: the driver, and what it reads and writes."""

from tunnelmark.tunnels.openvpn.driver import OpenVpnTunnel
from tunnelmark.tunnels.openvpn.params import OpenVpnParams

__all__ = ["OpenVpnParams", "OpenVpnTunnel"]
