"""What a kernel can do, found by trying it in a namespace that nobody sees."""

import subprocess
from collections.abc import Callable
from functools import cache
from typing import Final

Tried = Callable[..., bool]
"""Runs a program (its words) and says whether it came to a good end."""

_LINK_TYPES: Final = {
    "wireguard": "wireguard",
    "veth": "veth",
    "gre": "gre",
    "ip6gre": "ip6gre",
    "vxlan": "vxlan",
    "dummy": "dummy",
}
# It takes Ethernet alone, which a loopback is not.
_MACSEC_TRIAL: Final = (
    "ip link add tmtrial type veth peer name tmtrial1 && "
    "ip link add link tmtrial name tmtrial2 type macsec"
)
_ESP_TRIAL: Final = (
    *("ip", "xfrm", "state", "add", "src", "198.18.0.1", "dst", "198.18.0.2", "proto", "esp"),
    *("spi", "1", "mode", "transport", "enc", "cipher_null", "", "auth", "digest_null", ""),
)


@cache
def has_kernel(feature: str) -> bool:
    """Say whether this machine's kernel has a feature; unknown names are sought as modules."""
    return tried_kernel(feature, _tried)


def tried_kernel(feature: str, tried: Tried) -> bool:
    """Say the same of the kernel where ``tried`` runs its programs."""

    def apart(*argv: str) -> bool:
        return tried("unshare", "--net", *argv)

    def there(path: str) -> bool:
        return tried("test", "-e", path)

    if feature in _LINK_TYPES:
        return apart("ip", "link", "add", "tmtrial", *_link_arguments(_LINK_TYPES[feature]))
    trials: dict[str, Callable[[], bool]] = {
        "tun": lambda: there("/dev/net/tun"),
        "netns": lambda: there("/proc/self/ns/net"),
        "netem": lambda: apart("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"),
        "macsec": lambda: apart("sh", "-c", _MACSEC_TRIAL),
        "esp": lambda: apart(*_ESP_TRIAL),
        "ipsec": lambda: apart(*_ESP_TRIAL),
        "ppp": lambda: there("/dev/ppp") and _loadable("ppp_generic", tried),
    }
    return trials.get(feature, lambda: _loadable(feature, tried))()


def _link_arguments(kind: str) -> tuple[str, ...]:
    match kind:
        case "gre":
            return ("type", "gre", "local", "198.18.0.1", "remote", "198.18.0.2")
        case "ip6gre":
            return ("type", "ip6gre", "local", "fd00::1", "remote", "fd00::2")
        case "vxlan":
            return ("type", "vxlan", "id", "1", "dstport", "4789", "dev", "lo")
        case _:
            return ("type", kind)


def _tried(*argv: str) -> bool:
    try:
        done = subprocess.run(argv, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _loadable(module: str, tried: Tried) -> bool:
    name = module.replace("-", "_")
    return tried("test", "-e", f"/sys/module/{name}") or tried(
        "modprobe", "--dry-run", "--quiet", name
    )
