"""Whether a host's strongSwan has IKEv1, which is a choice of whoever built it."""

from pathlib import PurePosixPath
from typing import Final

from tunnelmark.model.host import Host
from tunnelmark.tunnels.strongswan.charon import CHARON

_LIBRARY: Final = "libcharon.so.0"
# What charon logs when it begins with IKEv1: a build without it (Debian's 6.1) does not contain it.
_MAIN_MODE: Final = "initiating Main Mode IKE_SA"
_NOT_FOUND: Final = 1
"""grep(1): the file was read, and the text is not in it."""


def no_ikev1(host: Host) -> str | None:
    """Return that the host's charon was built without IKEv1; None: it has it, or nobody knows."""
    library = PurePosixPath(host.has(CHARON) or CHARON).with_name(_LIBRARY)
    done = host.run(["grep", "-qF", _MAIN_MODE, str(library)], check=False)
    return "strongSwan has no IKEv1 here" if done.returncode == _NOT_FOUND else None
