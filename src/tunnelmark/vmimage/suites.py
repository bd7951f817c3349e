"""The image of each suite: how it differs from the one before."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tunnelmark.model.suites import Suite
from tunnelmark.vmimage.recipe import RECIPE, Recipe

_NO_SOFTETHER: Final = dict.fromkeys(
    ("softether-vpnclient", "softether-vpncmd", "softether-vpnserver"),
    "Debian has no such package since 13",
)
_MOVED: Final = {
    # Linux 6.4 gave simulated radios a directory.
    "drivers/net/wireless/mac80211_hwsim.ko": "drivers/net/wireless/virtual/mac80211_hwsim.ko",
}

_TRIXIE: Final = replace(
    RECIPE,
    suite="trixie",
    packages=tuple(name for name in RECIPE.packages if name not in _NO_SOFTETHER),
    absent=_NO_SOFTETHER,
    modules=tuple(_MOVED.get(name, name) for name in RECIPE.modules),
)

_OFFLOAD: Final = "drivers/net/ovpn"
"""OpenVPN's data channel: in Linux since 6.16, used by OpenVPN since 2.7."""

SUITES: Final[Mapping[Suite, Recipe]] = {
    "bookworm": RECIPE,
    "trixie": _TRIXIE,
    "trixie-backports": replace(
        _TRIXIE,
        backports=("linux-image-amd64", "openvpn"),
        modules=(*_TRIXIE.modules, _OFFLOAD),
    ),
    "forky": replace(_TRIXIE, suite="forky", modules=(*_TRIXIE.modules, _OFFLOAD)),
}
"""Recipe by the name that a study and ``tunnelmark vm build --suite`` give the suite."""


def absences(suite: Suite) -> list[str]:
    """Return one phrase for each reason why packages of other suites are not in this one."""
    reasons: dict[str, list[str]] = {}
    for package, reason in SUITES[suite].absent.items():
        reasons.setdefault(reason, []).append(package)
    return [f"without {', '.join(names)}: {reason}" for reason, names in reasons.items()]
