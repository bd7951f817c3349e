"""OpenConnect: the driver, and what ocserv and openconnect say."""

from tunnelmark.tunnels.ocserv.driver import OcservTunnel

__all__ = ["OcservTunnel"]
