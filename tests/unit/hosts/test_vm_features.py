import pytest

from tunnelmark.hosts.vm_features import FEATURES, has_feature

MODULES = (
    "kernel/net/ipv4/esp4.ko",
    "kernel/net/ipv6/esp6.ko",
    "kernel/net/xfrm/xfrm_user.ko",
    "kernel/drivers/net/ppp/ppp_mppe.ko",
    "kernel/drivers/char/hw_random/virtio-rng.ko.xz",
)


@pytest.mark.parametrize(
    ("feature", "there"),
    [
        ("esp", True),
        ("ppp_mppe", True),
        ("virtio_rng", True),
        ("wireguard", False),
        ("ppp", False),
        ("", False),
        ("../esp4", False),
    ],
)
def test_features_by_modules(feature: str, there: bool) -> None:
    assert has_feature(MODULES, feature) is there


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_needs_all_its_modules(feature: str) -> None:
    needed = [f"kernel/{name}.ko" for name in FEATURES[feature]]
    assert has_feature(needed, feature)
    assert not has_feature(needed[1:], feature)
