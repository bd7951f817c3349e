"""WPA2 and the other securities of a WLAN, on simulated radios."""

from tunnelmark.tunnels.wpa2.driver import Wpa2Params, Wpa2Tunnel

__all__ = ["Wpa2Params", "Wpa2Tunnel"]
