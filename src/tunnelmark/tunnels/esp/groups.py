"""Groups of IKE's own key exchange: in a study's words, in strongSwan's, and what charon has."""

from dataclasses import dataclass
from typing import Final, Literal

from tunnelmark.model.errors import RefusedError
from tunnelmark.tunnels.strongswan.charon import Charon
from tunnelmark.tunnels.strongswan.config import IKE_PROPOSAL

IkeGroup = Literal["ecp256", "modp2048", "x25519", "x25519-mlkem768"]
IKEV2_ONLY: Final[frozenset[IkeGroup]] = frozenset({"x25519", "x25519-mlkem768"})
"""RFC 8031 and RFC 9370 are of IKEv2."""

DEFAULT_GROUP: Final[IkeGroup] = "ecp256"
"""RFC 8247 section 2.4 asks every implementation for it."""

_CIPHERS: Final = IKE_PROPOSAL.rpartition("-")[0]


@dataclass(frozen=True)
class _Names:
    proposal: str
    algorithms: tuple[str, ...]
    """As ``swanctl --list-algs`` has them; the first is shown with an association."""
    plugins: tuple[str, ...] = ()


_NAMES: Final[dict[IkeGroup, _Names]] = {
    "ecp256": _Names("ecp256", ("ECP_256",)),
    "modp2048": _Names("modp2048", ("MODP_2048",)),
    "x25519": _Names("x25519", ("CURVE_25519",)),
    # RFC 9370: ML-KEM follows in an exchange of its own, which may be fragmented.
    "x25519-mlkem768": _Names("x25519-ke1_mlkem768", ("CURVE_25519", "ML_KEM_768"), ("ml",)),
}


def ike_proposal(group: IkeGroup) -> str:
    """Return the one proposal for IKE, in strongSwan's words."""
    return f"{_CIPHERS}-{_NAMES[group].proposal}"


def plugins_for(group: IkeGroup) -> tuple[str, ...]:
    """Return the plugins of charon that a group needs beside the usual ones."""
    return _NAMES[group].plugins


def require_group(charon: Charon, group: IkeGroup) -> None:
    """Raise ``RefusedError`` if charon does not list what the group needs; all have the default."""
    if group == DEFAULT_GROUP:
        return
    listed = charon.algorithms()
    for name in _NAMES[group].algorithms:
        if name not in listed:
            raise RefusedError(
                f"{charon.place} has no {name}, which ike_group {group} needs: swanctl --list-algs "
                f"names {len(listed)} other algorithms"
            )


def hold_group(place: str, group: IkeGroup, suite: str) -> None:
    """Raise ``RefusedError`` unless the suite of an association, joined by slashes, has it."""
    if _NAMES[group].algorithms[0] not in suite.split("/"):
        raise RefusedError(f"{place} agreed on {suite}, the study asks for ike_group {group}")
