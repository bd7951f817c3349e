"""Measures what a VPN tunnel does to traffic, on a link, on a device."""

__version__ = "0.1.0"
