"""Which kernel features a machine has, by the modules of its image."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

FEATURES: Final = {
    "ah": ("ah4", "ah6", "xfrm_user"),
    "esp": ("esp4", "esp6", "xfrm_user"),
    "gre": ("ip_gre",),
    "ip6gre": ("ip6_gre",),
    "ipcomp": ("ipcomp", "ipcomp6", "xfrm_user"),
    "ipsec": ("esp4", "esp6", "xfrm_user"),
    "l2tp": ("l2tp_ppp",),
    "ppp": ("ppp_generic", "ppp_async"),
    "wlan": ("mac80211_hwsim",),
}
"""Features whose name is not the name of their module; all modules are needed."""

_NAME: Final = re.compile(r"[a-z0-9_]+")


def has_feature(modules: Iterable[str], feature: str) -> bool:
    """Say whether modules (paths of files, or of what is built in) give a feature.

    A feature that is not in ``FEATURES`` is the name of a module.
    """
    if not _NAME.fullmatch(feature):
        return False
    names = {PurePosixPath(path).name.split(".", 1)[0].replace("-", "_") for path in modules}
    return all(name in names for name in FEATURES.get(feature, (feature,)))
