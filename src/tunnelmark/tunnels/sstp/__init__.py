"""SSTP: the driver, our server and SoftEther's, and what they say."""

from tunnelmark.tunnels.sstp.driver import SstpTunnel

__all__ = ["SstpTunnel"]
