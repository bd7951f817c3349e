"""Machines of other suites than the default: a short study in each, with programs of today.

The image of trixie is built where it is missing. Those of the other two come from package lists
that change every day, so they are tried where somebody has built them. So is IP-TFS, for which
Debian builds no kernel.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from skips import iptfs_kernel
from small_study import LOOSE_VALIDITY
from tunnelmark.model.suites import Suite
from tunnelmark.vmimage import build, cache
from tunnelmark.vmimage.suites import SUITES

pytestmark = [pytest.mark.lab, pytest.mark.machine, pytest.mark.slow]

HEAD = f"""
format = 1
name = "suite"
title = "Programs of another suite"
seed = 7

[precision]
metric = "rtt_p50_ns"
relative_half_width = "90 %"
min_repeats = 1
max_repeats = 1
bring_ups = 1

{LOOSE_VALIDITY}
[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "20 ms"
packets = 50
payload_bytes = {{payload}}

"""
STUDY = (
    HEAD.replace("{payload}", "512")
    + """
[[tunnel]]
kind = "openvpn"
mtu_bytes = 1400
{openvpn}

[[tunnel]]
kind = "ikev2"
implementation = "kernel"
ike_group = "{group}"
"""
)
IPTFS = (
    HEAD.replace("{payload}", "[64, 512, 1472]")
    + """
[[tunnel]]
kind = "ipsec"
mode = "iptfs"

[[tunnel]]
kind = "ipsec"
mode = "iptfs"
suite = "CHACHA20-POLY1305"
udp_encapsulation = true
"""
)
KERNEL = 'offload = "kernel"'


@pytest.mark.parametrize(
    ("suite", "openvpn", "group", "expected"),
    [
        ("trixie", "", "x25519", ("OpenVPN 2.6.", "user space", "strongSwan 6.")),
        ("trixie-backports", KERNEL, "x25519", ("OpenVPN 2.7.", "kernel", "strongSwan 6.")),
        ("forky", KERNEL, "x25519-mlkem768", ("OpenVPN 2.", "kernel", "strongSwan 6.")),
    ],
    ids=["trixie", "trixie-backports", "forky"],
)
def test_a_study_in_a_machine_of_a_suite(
    study: Callable[[str], Any],
    suite: Suite,
    openvpn: str,
    group: str,
    expected: tuple[str, str, str],
) -> None:
    if suite != "trixie" and cache.find(SUITES[suite]) is None:
        pytest.skip(f"no image of {suite} (tunnelmark vm build --suite {suite})")
    recipe = SUITES[suite]
    image = cache.find(recipe) or build.build(
        clock=time.monotonic, say=lambda _step: None, recipe=recipe
    )
    one = study(STUDY.format(openvpn=openvpn, group=group))
    one.start(str(one.file), "--suite", suite)
    # A busy computer makes an emulated sender late: such trials are invalid, and no failure here.
    assert one.finish() in {0, 6}, one.errors
    blocks = {
        block["tunnel"].split("-")[0]: block
        for path in one.directory.glob("blocks/*.json")
        if (block := json.loads(path.read_text()))
    }
    for block in blocks.values():
        assert block["error"] is None
        assert f"a machine with Linux {image.kernel_release}," in block["placed_on"]
        proofs = [*block["proofs"], *block["baseline_proofs"]]
        assert [proof["message"] for proof in proofs if proof["verdict"] != "proved"] == []
    (by_openvpn, *_), (by_ikev2, *_) = (blocks[kind]["negotiated"] for kind in ("openvpn", "ikev2"))
    assert by_openvpn["version"].startswith(expected[0])
    assert by_openvpn["data_path"] == expected[1]
    assert by_ikev2["version"].startswith(expected[2])
    assert by_ikev2["data_path"] == "kernel"
    manifest = json.loads((one.directory / "manifest.json").read_text())
    assert manifest["suite"] == manifest["environment"]["machine system"] == suite
    assert f"openvpn={image.packages['openvpn']}" in manifest["environment"]["machine packages"]


def test_ip_tfs_in_a_machine_whose_kernel_has_it(study: Callable[[str], Any]) -> None:
    kernel = iptfs_kernel()
    if kernel is None:
        pytest.skip("no image of forky has a kernel with xfrm_iptfs (docs/ipsec.md)")
    one = study(IPTFS)
    one.start(str(one.file), "--suite", "forky", "--kernel", kernel)
    assert one.finish() in {0, 6}, one.errors
    blocks = [json.loads(path.read_text()) for path in one.directory.glob("blocks/*.json")]
    points = {}
    for block in blocks:
        assert block["error"] is None
        (agreed,) = block["negotiated"]
        assert (agreed["details"]["mode"], agreed["mtu_bytes"]) == ("iptfs", 1500)
        for proof in block["proofs"]:
            assert proof["verdict"] == "proved", proof["message"]
            points[agreed["cipher"]] = proof["fragmentation_point_bytes"]
            # The last one, of two packets, is cut by the tunnel: the pieces are no fragments of IP.
            sizes = {one["payload_bytes"]: one["outer_packet_bytes"] for one in proof["samples"]}
            more = 8 if agreed["details"]["udp_encapsulation"] == "on" else 0
            assert sizes[64] == [152 + more]
            assert sizes[512] == [600 + more]
            assert sizes[1472] == [1500, 116 + 2 * more]
        assert [one for one in block["layers"] if not one["equal"]] == []
    assert points == {"AES-256-GCM": 1414, "CHACHA20-POLY1305": 1406}
