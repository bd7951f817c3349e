"""What stands in the system image; its digest names the image in the cache."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Final


@dataclass(frozen=True)
class Account:
    """A user, with a group of the same name and number, that a package's script would add."""

    name: str
    uid: int
    home: str


@dataclass(frozen=True)
class Recipe:
    """Everything an image is made from, except the versions the distribution offers on the day."""

    format: int
    """Counts changes of the builder itself that change the image."""
    suite: str
    kernel: str
    """Metapackage that names the kernel."""
    packages: tuple[str, ...]
    """Asked for by name; what they depend on comes with them, recommendations do not."""
    left_out: tuple[str, ...]
    """Starts of paths that are not taken from the packages."""
    modules: tuple[str, ...]
    """Kernel modules, or directories of them, below ``kernel/``; their dependencies come along."""
    boot_modules: tuple[str, ...]
    """Modules loaded before the system is mounted, by name."""
    accounts: tuple[Account, ...]
    links: Mapping[str, str]
    """Symbolic links that a package's script would make: path to target."""
    files: Mapping[str, str]
    """Files with their content; they win over those of the packages."""
    directories: tuple[str, ...]
    init: str
    """Text of the first program of the machine."""
    backports: tuple[str, ...] = ()
    """Packages that come from the suite's backports."""
    own_kernel: str = ""
    """SHA-256 of a user's own kernel and its modules, which take the place of the suite's."""
    beside: tuple[str, ...] = ()
    """Packages that Debian does not install together with one of ``packages``, since both want to
    be the one daemon of a system; no file is in both. What they depend on comes with them."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Packages of other suites that this one cannot have, each with the reason."""

    def digest(self) -> str:
        """Return 16 hexadecimal digits that stand for this recipe."""
        parts = asdict(self)
        del parts["absent"]  # what is not there makes no image another one
        for name in _NEWER:
            # An image that was built before there was such a field stays as good as it was.
            if not parts[name]:
                del parts[name]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_NEWER: Final = ("backports", "own_kernel", "beside")


RECIPE: Final = Recipe(
    format=1,
    suite="bookworm",
    kernel="linux-image-amd64",
    packages=(
        # a system that can run programs
        "base-files",
        "base-passwd",
        "bash",
        "busybox-static",
        "coreutils",
        "dash",
        "findutils",
        "grep",
        "kmod",
        "libc-bin",
        "mawk",
        "mount",
        "openssl",
        "procps",
        "python3",
        "sed",
        "usr-is-merged",  # else apt brings usrmerge, and all of Perl with it
        "util-linux",
        # network
        "ethtool",
        "iproute2",
        "iptables",
        "iputils-ping",
        "nftables",
        "tcpdump",
        # tunnels
        "hostapd",
        "iw",
        "libcharon-extauth-plugins",
        "libcharon-extra-plugins",
        "libstrongswan-extra-plugins",
        "libstrongswan-standard-plugins",
        "nebula",
        "ocserv",
        "openconnect",
        "openssh-client",
        "openssh-server",
        "openvpn",
        "ppp",
        "pptp-linux",
        "pptpd",
        "softether-vpnclient",
        "softether-vpncmd",
        "softether-vpnserver",
        "sstp-client",
        "strongswan-charon",
        "strongswan-swanctl",
        "tinc",
        "wireguard-go",
        "wireguard-tools",
        "wpasupplicant",
        "xl2tpd",
        # workloads and cross-checks
        "curl",
        "dnsmasq-base",
        "dnsperf",
        "iperf3",
        "irtt",
        "nginx-light",
    ),
    left_out=(
        "lib/systemd/system",
        "usr/bin/udevadm",
        "usr/include",
        "usr/lib/systemd/system",
        "usr/lib/udev",
        "usr/share/bash-completion",
        "usr/share/bug",
        "usr/share/doc",
        "usr/share/info",
        "usr/share/lintian",
        "usr/share/locale",
        "usr/share/man",
        "usr/share/zsh",
        "var/cache",
        "var/lib/apt",
    ),
    modules=(
        "arch/x86/crypto",
        "crypto",
        "drivers/block/virtio_blk.ko",
        "drivers/char/hw_random/virtio-rng.ko",
        "drivers/char/virtio_console.ko",
        "drivers/net/bonding",
        "drivers/net/dummy.ko",
        "drivers/net/geneve.ko",
        "drivers/net/ifb.ko",
        "drivers/net/ipvlan",
        "drivers/net/macsec.ko",
        "drivers/net/macvlan.ko",
        "drivers/net/ppp",
        "drivers/net/slip",
        "drivers/net/tap.ko",
        "drivers/net/tun.ko",
        "drivers/net/veth.ko",
        "drivers/net/virtio_net.ko",
        "drivers/net/vrf.ko",
        "drivers/net/vxlan",
        "drivers/net/wireguard",
        "drivers/net/wireless/mac80211_hwsim.ko",
        "drivers/virtio",
        "fs/overlayfs",
        "fs/squashfs",
        "lib",
        "net/6lowpan",
        "net/8021q",
        "net/bridge",
        "net/core",
        "net/ipv4",
        "net/ipv6",
        "net/key",
        "net/l2tp",
        "net/mac80211",
        "net/netfilter",
        "net/openvswitch",
        "net/packet",
        "net/sched",
        "net/wireless",
        "net/xfrm",
    ),
    boot_modules=(
        "virtio_pci",
        "virtio_blk",
        "virtio_console",
        "virtio_net",
        "virtio_rng",
        "squashfs",
        "overlay",
    ),
    accounts=(
        Account("sshd", 100, "/run/sshd"),
        Account("tcpdump", 101, "/nonexistent"),
        Account("sstpc", 102, "/run/sstpc"),
        Account("ocserv", 103, "/nonexistent"),
    ),
    links={
        "usr/bin/awk": "mawk",
        "usr/bin/sh": "dash",
        "usr/sbin/iptables": "iptables-nft",
        "usr/sbin/ip6tables": "ip6tables-nft",
        "etc/mtab": "/proc/self/mounts",
        "var/run": "/run",
        "var/lock": "/run/lock",
    },
    files={
        "etc/hostname": "tunnelmark\n",
        # No resolver: pppd, pptp and sstpc look their own host up and would wait for an answer.
        "etc/hosts": "127.0.0.1 localhost tunnelmark\n::1 localhost\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"
        "services: files\nprotocols: files\n",
        "etc/resolv.conf": "",
        "etc/fstab": "",
        "etc/machine-id": "",
        "etc/shells": "/bin/sh\n/bin/bash\n",
    },
    directories=("proc", "sys", "dev", "run", "tmp", "root", "mnt", "var/log", "var/tmp"),
    init=resources.files("tunnelmark.vmimage").joinpath("init.sh").read_text(encoding="utf-8"),
    # Conflicts with strongSwan, of which the image has the daemon and swanctl.
    beside=("libreswan",),
)
"""The image that machines start from unless a run asks for another suite."""
