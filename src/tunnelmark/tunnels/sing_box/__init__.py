"""sing-box: the driver, and its configuration."""

from tunnelmark.tunnels.sing_box.driver import SingBoxTunnel

__all__ = ["SingBoxTunnel"]
