"""Groups of IKE's key exchange: one proposal, what charon lists, and what it agreed on."""

from typing import Any

import pytest

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.esp.groups import (
    IkeGroup,
    hold_group,
    ike_proposal,
    plugins_for,
    require_group,
)
from tunnelmark.tunnels.ipsec import IpsecParams
from tunnelmark.tunnels.strongswan.charon import Charon
from tunnelmark.tunnels.strongswan.params import StrongswanParams

LISTED = """\
encryption:
  AES_CBC[openssl]
integrity:
  HMAC_SHA2_256_128[openssl]
diffie-hellman:
  MODP_2048[openssl]
  CURVE_25519[openssl]
  ECP_256[openssl]
"""


@pytest.fixture
def charon(site: Site) -> Charon:
    host: Any = site.client.host
    host.answer = lambda argv, _stdin: (0, LISTED if argv[1] == "--list-algs" else "")
    return Charon("client", host)


def test_what_swanctl_lists_is_read(charon: Charon) -> None:
    assert charon.algorithms() == (
        "AES_CBC",
        "HMAC_SHA2_256_128",
        "MODP_2048",
        "CURVE_25519",
        "ECP_256",
    )


@pytest.mark.parametrize("group", ["ecp256", "modp2048", "x25519"])
def test_a_group_that_is_there_is_taken(charon: Charon, group: IkeGroup) -> None:
    require_group(charon, group)


def test_a_group_that_is_not_there_is_refused(charon: Charon) -> None:
    with pytest.raises(RefusedError) as caught:
        require_group(charon, "x25519-mlkem768")
    assert str(caught.value) == (
        "charon of the client on client has no ML_KEM_768, which ike_group x25519-mlkem768 needs: "
        "swanctl --list-algs names 5 other algorithms"
    )


def test_each_group_is_one_proposal() -> None:
    assert ike_proposal("ecp256") == "aes128-sha256-ecp256"
    assert ike_proposal("x25519-mlkem768") == "aes128-sha256-x25519-ke1_mlkem768"
    assert plugins_for("x25519") == ()
    assert plugins_for("x25519-mlkem768") == ("ml",)
    params = StrongswanParams.model_validate({"ike_group": "x25519"})
    assert params.ike_settings()["proposals"] == "aes128-sha256-x25519"


def test_another_group_than_asked_for_is_refused() -> None:
    suite = "AES_CBC/128/HMAC_SHA2_256_128/PRF_HMAC_SHA2_256/ECP_256"
    hold_group("charon", "ecp256", suite)
    with pytest.raises(RefusedError, match="ECP_256, the study asks for ike_group x25519"):
        hold_group("charon", "x25519", suite)


def test_a_column_stands_only_for_another_group_than_ever() -> None:
    assert "ike_group" not in StrongswanParams.model_validate({}).columns()
    assert (
        StrongswanParams.model_validate({"ike_group": "x25519"}).columns()["ike_group"] == "x25519"
    )


def test_what_is_of_ikev2_is_refused_with_ikev1() -> None:
    assert IpsecParams.model_validate({"ike": "v1", "ike_group": "modp2048"})
    with pytest.raises(ValueError, match="ike_group x25519 is for ike v2, it cannot be set"):
        IpsecParams.model_validate({"ike": "v1", "ike_group": "x25519"})
