"""WireGuard: the driver, and its ends."""

from tunnelmark.tunnels.wireguard.driver import WireGuardTunnel

__all__ = ["WireGuardTunnel"]
