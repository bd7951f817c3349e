"""SoftEther VPN: the driver, its programs, and what they say."""

from tunnelmark.tunnels.softether.driver import SoftEtherTunnel

__all__ = ["SoftEtherTunnel"]
