"""The image of each suite: how it differs from the one before."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tunnelmark.model.suites import Suite
from tunnelmark.vmimage.recipe import RECIPE, Recipe

_ABSENT: Final = {
    name: "Debian 13 has no such package"
    for name in ("softether-vpnclient", "softether-vpncmd", "softether-vpnserver")
}
_MOVED: Final = {
    # Linux 6.4 gave simulated radios a directory.
    "drivers/net/wireless/mac80211_hwsim.ko": "drivers/net/wireless/virtual/mac80211_hwsim.ko",
}

_TRIXIE: Final = replace(
    RECIPE,
    suite="trixie",
    packages=tuple(name for name in RECIPE.packages if name not in _ABSENT),
    absent=_ABSENT,
    modules=tuple(_MOVED.get(name, name) for name in RECIPE.modules),
)

SUITES: Final[Mapping[Suite, Recipe]] = {
    "bookworm": RECIPE,
    "trixie": _TRIXIE,
    # Linux 6.16 brought OpenVPN's data channel into the kernel; OpenVPN 2.7 is the first to use it.
    "trixie-backports": replace(
        _TRIXIE,
        backports=("linux-image-amd64", "openvpn"),
        modules=(*_TRIXIE.modules, "drivers/net/ovpn"),
    ),
}
"""Recipe by the name that a study and ``tunnelmark vm build --suite`` give the suite."""


def absences(suite: Suite) -> list[str]:
    """Return one phrase for each reason why packages of other suites are not in this one."""
    reasons: dict[str, list[str]] = {}
    for package, reason in SUITES[suite].absent.items():
        reasons.setdefault(reason, []).append(package)
    return [f"without {', '.join(names)}: {reason}" for reason, names in reasons.items()]
