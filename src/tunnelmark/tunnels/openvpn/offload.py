"""OpenVPN's data channel in the kernel: which module an OpenVPN uses, and whether it is there."""

import re
from typing import Final

from tunnelmark.model.host import Host

_MODULE: Final = "ovpn"
"""The kernel's own, since Linux 6.16; OpenVPN uses it since 2.7."""
_MODULE_OF_2_6: Final = "ovpn_dco_v2"
"""Built beside the kernel (Debian: openvpn-dco-dkms)."""
_FIRST_WITH_MODULE: Final = (2, 7)
_VERSION: Final = re.compile(r"OpenVPN ([0-9]{1,3})\.([0-9]{1,3})")


def offload_module(host: Host) -> str:
    """Return the module that a host has, or would have if its kernel were of today."""
    return _MODULE_OF_2_6 if host.has_kernel(_MODULE_OF_2_6) else _MODULE


def no_offload(host: Host) -> str | None:
    """Return that the host's OpenVPN does not use the module that its kernel has, or None.

    With the other module it falls back to user space.
    """
    found = _VERSION.match(host.run(["openvpn", "--version"], check=False).text())
    if found is None:
        return None  # the log of the tunnel shows what it does
    newer = (int(found[1]), int(found[2])) >= _FIRST_WITH_MODULE
    module = _MODULE if newer else _MODULE_OF_2_6
    if host.has_kernel(module):
        return None
    return f"{found[0]} uses the kernel module {module}, which the kernel lacks"
