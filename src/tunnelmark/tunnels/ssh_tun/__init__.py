"""OpenSSH as a tunnel: the driver, and what ssh and sshd say."""

from tunnelmark.tunnels.ssh_tun.driver import SshTunTunnel

__all__ = ["SshTunTunnel"]
