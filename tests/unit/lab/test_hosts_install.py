"""Packages on a host: no service starts, and nothing stays there, however the installation ends."""

import os
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tunnelmark.lab.hosts_install import install
from tunnelmark.model.errors import LabError
from tunnelmark.model.host import Completed

_NAMESPACE = (
    *("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))),
    *("--mount", "--propagation", "private", "sh", "-c"),
)
# A host on which nobody has written a policy for services yet.
_FRESH = 'mount -t tmpfs tmpfs /usr/sbin && PATH="$0:$PATH" "$@"; echo $? >"$0/ended"; ls /usr/sbin'


class Host:
    """This computer, with a package manager of the test's own."""

    name = "client"

    def __init__(self, folder: Path, apt: str, setting: str = _FRESH) -> None:
        self.folder, self.work_dir = folder, PurePosixPath(folder)
        self.setting = setting
        (folder / "apt-get").write_text(f"#!/bin/sh\n{apt}\n", encoding="ascii")
        (folder / "apt-get").chmod(0o755)
        self.said = b""

    def has(self, _program: str) -> str:
        return str(self.folder / "apt-get")

    def put(self, path: PurePosixPath, data: bytes, *, mode: int = 0o600) -> None:
        Path(path).write_bytes(data)
        Path(path).chmod(mode)

    def run(self, argv: Any, **_: object) -> Completed:
        words = [*_NAMESPACE, self.setting, str(self.folder), *argv]
        done = subprocess.run(words, capture_output=True, check=False, timeout=30)
        self.said = done.stdout
        status = int((self.folder / "ended").read_text())
        return Completed(tuple(argv), status, done.stdout, done.stderr)


def test_an_installation_that_is_killed_leaves_no_policy_for_services(tmp_path: Path) -> None:
    """The policy forbade all services for good; the trap that removed it died with its shell."""
    host: Any = Host(tmp_path, "ls /usr/sbin >&2; kill -9 $PPID")
    with pytest.raises(LabError, match="apt-get"):
        install(host, ["iperf3"])
    assert host.said == b""


def test_maintainer_scripts_start_no_service(tmp_path: Path) -> None:
    log = tmp_path / "log"
    helpers = "for helper in invoke-rc.d /usr/bin/deb-systemd-invoke; do"
    script = f'echo "$@" >>{log}; {helpers} $helper ssh start >>{log} 2>&1 || exit 7; done'
    host: Any = Host(tmp_path, script, setting='PATH="$0:$PATH" "$@"; echo $? >"$0/ended"')
    install(host, ["iperf3", "ethtool"])
    assert log.read_text().splitlines() == [
        "-qq update",
        "-qq -s --no-install-recommends install iperf3 ethtool",
        "-qq -y --no-install-recommends install iperf3 ethtool",
    ]
    # What the helpers are to others has not changed.
    assert Path("/usr/bin/deb-systemd-invoke").read_bytes() != b"#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize(
    ("simulated", "installs"),
    [
        ("Inst iperf3 (3.12-1 Debian:12 [amd64])", True),
        ("Inst init-system-helpers-extra [1.0] (1.1 Debian:12 [all])", True),
        ("Inst init-system-helpers [1.60] (1.66 Debian:13 [all])", False),
    ],
)
def test_what_dpkg_could_not_replace_is_not_installed(
    tmp_path: Path, simulated: str, installs: bool
) -> None:
    """Its rename onto a mount point fails, and an essential package stayed half-unpacked."""
    apt = f'case "$*" in *-s*) echo "{simulated}";; *install*) touch "$0-installed";; esac'
    host: Any = Host(tmp_path, apt)
    if installs:
        install(host, ["iperf3"])
    else:
        with pytest.raises(LabError, match=r"^client: apt-get: these packages need a n"):
            install(host, ["iperf3"])
    assert (tmp_path / "apt-get-installed").exists() == installs
