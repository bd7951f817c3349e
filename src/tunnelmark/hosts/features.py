"""What this machine's kernel can do, found by trying it in a namespace that nobody sees."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

_LINK_TYPES: Final = {
    "wireguard": "wireguard",
    "veth": "veth",
    "macsec": "macsec",
    "gre": "gre",
    "ip6gre": "ip6gre",
    "vxlan": "vxlan",
    "dummy": "dummy",
}
_ESP_TRIAL: Final = (
    *("ip", "xfrm", "state", "add", "src", "198.18.0.1", "dst", "198.18.0.2", "proto", "esp"),
    *("spi", "1", "mode", "transport", "enc", "cipher_null", "", "auth", "digest_null", ""),
)


@cache
def has_kernel(feature: str) -> bool:
    """Say whether this machine's kernel has a feature; unknown names are sought as modules."""
    if feature in _LINK_TYPES:
        return _tried("ip", "link", "add", "tmtrial", *_link_arguments(_LINK_TYPES[feature]))
    trials: dict[str, Callable[[], bool]] = {
        "tun": lambda: Path("/dev/net/tun").exists(),
        "netns": lambda: Path("/proc/self/ns/net").exists(),
        "netem": lambda: _tried("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"),
        "esp": lambda: _tried(*_ESP_TRIAL),
        "ipsec": lambda: _tried(*_ESP_TRIAL),
        "ppp": lambda: Path("/dev/ppp").exists() and _loadable("ppp_generic"),
    }
    return trials.get(feature, lambda: _loadable(feature))()


def _link_arguments(kind: str) -> tuple[str, ...]:
    match kind:
        case "gre":
            return ("type", "gre", "local", "198.18.0.1", "remote", "198.18.0.2")
        case "ip6gre":
            return ("type", "ip6gre", "local", "fd00::1", "remote", "fd00::2")
        case "vxlan":
            return ("type", "vxlan", "id", "1", "dstport", "4789", "dev", "lo")
        case "macsec":
            return ("link", "lo", "type", "macsec")
        case _:
            return ("type", kind)


def _tried(*argv: str) -> bool:
    try:
        done = subprocess.run(
            ["unshare", "--net", *argv], capture_output=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _loadable(module: str) -> bool:
    name = module.replace("-", "_")
    if Path("/sys/module", name).exists():
        return True
    try:
        done = subprocess.run(
            ["modprobe", "--dry-run", "--quiet", name], capture_output=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
