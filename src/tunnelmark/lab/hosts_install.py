"""Packages for a host over SSH, by its own package manager and only when the user says so."""

from collections.abc import Sequence
from typing import Final

from tunnelmark.hosts.ssh_host import SshHost
from tunnelmark.model.errors import LabError

_LIMIT_S: Final = 900.0
_NO_SERVICE: Final = b"#!/bin/sh\nexit 0\n"
# Debian starts the services of what it installs by these two (init-system-helpers). A policy that
# forbids it would be a file of the host, for all programs, and stay if this is killed; these mounts
# are seen by the package manager alone and end with it. They exist, so they can be mounted over.
_INSTALL: Final = (
    "export DEBIAN_FRONTEND=noninteractive; instead=$1; shift; "
    "for helper in /usr/sbin/invoke-rc.d /usr/bin/deb-systemd-invoke; do "
    'if [ -e "$helper" ]; then mount --bind "$instead" "$helper" || exit; fi; done; '
    "apt-get -qq update || exit; "
    # dpkg cannot replace a file that is a mount point, and would leave the package half-unpacked.
    'if apt-get -qq -s --no-install-recommends install "$@" | grep -q "^Inst init-system-helpers "'
    '; then echo "these packages need a newer init-system-helpers, which cannot be replaced while '
    'services are kept from starting; run on that host: apt-get install init-system-helpers" >&2; '
    "exit 1; fi; "
    'apt-get -qq -y --no-install-recommends install "$@"'
)
_PRIVATELY: Final = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _INSTALL)


def install(host: SshHost, packages: Sequence[str]) -> None:
    """Install packages on a host; no service is started.

    Raises ``LabError`` with the words of the package manager, or where there is none that we know.
    """
    if host.has("apt-get") is None:
        names = " ".join(packages)
        raise LabError(
            f"{host.name}: has no apt-get; install these Debian packages or their equivalents by "
            f"hand: {names}"
        )
    instead = host.work_dir / "no-service"
    host.put(instead, _NO_SERVICE, mode=0o755)
    words = [*_PRIVATELY, "install", str(instead), *packages]
    done = host.run(words, timeout_s=_LIMIT_S, check=False)
    if done.returncode != 0:
        raise LabError(f"{host.name}: apt-get: {done.last_words()}")
