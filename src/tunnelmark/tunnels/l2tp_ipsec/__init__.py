"""L2TP over IPsec: the driver, and the files of xl2tpd."""

from tunnelmark.tunnels.l2tp_ipsec.driver import L2tpIpsecTunnel

__all__ = ["L2tpIpsecTunnel"]
