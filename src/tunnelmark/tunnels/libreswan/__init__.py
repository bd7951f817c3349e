"""Libreswan: the driver, its pluto, and what pluto says of associations."""

from tunnelmark.tunnels.libreswan.driver import LibreswanTunnel

__all__ = ["LibreswanTunnel"]
