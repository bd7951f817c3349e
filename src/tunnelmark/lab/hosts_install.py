"""Packages for a host over SSH, by its own package manager and only when the user says so."""

from collections.abc import Sequence
from typing import Final

from tunnelmark.hosts.ssh_host import SshHost
from tunnelmark.model.errors import LabError

_LIMIT_S: Final = 900.0
# Debian starts the services of what it installs, unless a policy says no (invoke-rc.d(8)).
_INSTALL: Final = (
    "export DEBIAN_FRONTEND=noninteractive; policy=/usr/sbin/policy-rc.d; "
    'if [ ! -e "$policy" ]; then trap \'rm -f "$policy"\' EXIT; '
    'printf "#!/bin/sh\\nexit 101\\n" >"$policy"; chmod 755 "$policy"; fi; '
    'apt-get -qq update && apt-get -qq -y --no-install-recommends install "$@"'
)


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
    done = host.run(["sh", "-c", _INSTALL, "install", *packages], timeout_s=_LIMIT_S, check=False)
    if done.returncode != 0:
        raise LabError(f"{host.name}: apt-get: {done.last_words()}")
