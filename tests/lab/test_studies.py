"""Every built-in study runs: all of its tunnels come up, prove themselves and measure one trial."""

import json
import tomllib
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest
import tomli_w

from places import runs_here
from skips import CONDITIONS
from small_study import smallest
from tunnelmark.model.errors import StudyError
from tunnelmark.study.scale import FULL, names, scaled

# Longer than any of them takes on a busy computer.
_HANGS_S = 1700
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(_HANGS_S + 100)]

STUDIES = sorted(
    file.name.removesuffix(".toml")
    for file in resources.files("tunnelmark.study").joinpath("builtin").iterdir()
)
# Those of which many blocks need a machine: what does not is a case of its own, beside it.
_IN_TWO = {"all-tunnels", "all-gateways"}
# Those that run in machines. One machine at a time: they have the worker of all that needs one.
_IN_MACHINES = {"dymora-2014", "kolahi-2010", "munasinghe-2005", "pptp-vs-ssl-2011", "wpa2"}
# What a busy computer makes of a trial; it says nothing about the study.
OF_TIMING = {
    *("sender_lateness", "reply_lateness"),
    *("link_lateness_forward", "link_lateness_reverse"),
    *("steal", "starvation", "receiver_overrun"),
}
# Values of tunnels of which one is enough here, the first that a table has; tests/lab/test_sing_box
# proves each protocol, tests/lab/test_gateway.py and tests/contract/test_gateways.py have other
# numbers of clients.
_ONE_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "sing_box": {"protocol": ("vless", "tuic")},
    "openvpn": {"clients": (3,)},
    "wireguard": {"clients": (3,)},
}


def touched(name: str) -> Any:
    """Return the study at its smallest scale, with one value of each parameter of a workload."""
    text = resources.files("tunnelmark.study").joinpath(f"builtin/{name}.toml").read_text("utf-8")
    document = tomllib.loads(text)
    scale = next(iter(names(document)))
    assert scale == "smoke" or names(document) == (FULL,)
    small = smallest(scaled(document, scale, _fault).document)
    kept = {key for table in small["workload"] for key in (table["kind"], table.get("label"))}
    metrics = small["precision"].get("metrics", {})
    small["precision"]["metrics"] = {k: v for k, v in metrics.items() if k in kept}
    if "tunnel" in small:
        small["tunnel"] = [_with_one(table) for table in small["tunnel"]]
    return small


def _with_one(table: dict[str, Any]) -> dict[str, Any]:
    chosen = {
        key: next(one for one in values if one in table[key])
        for key, values in _ONE_OF.get(table["kind"], {}).items()
        if isinstance(table.get(key), list)
    }
    # As a study names each of several values: two tables may share a label.
    label = "-".join(map(str, (table.get("label", table["kind"]), *chosen.values())))
    return {**table, **chosen, "label": label}


def _needs_none(table: dict[str, Any]) -> bool:
    params = {key: value for key, value in table.items() if key not in {"kind", "label"}}
    one = {key: value[0] if isinstance(value, list) else value for key, value in params.items()}
    return runs_here(table["kind"], one)


def _fault(place: object, words: str) -> StudyError:
    raise AssertionError(place, words)


def _cases(name: str) -> Iterator[Any]:
    # The longest are groups, which xdist begins with.
    machine, tours, studies = map(pytest.mark.xdist_group, ("machine", name, "studies"))
    document = touched(name)
    if name in _IN_TWO:
        tables: dict[bool, list[Any]] = {True: [], False: []}
        for table in document["tunnel"]:
            tables[_needs_none(table)].append(table)
        yield pytest.param({**document, "tunnel": tables[True]}, id=f"{name}-here", marks=tours)
        yield pytest.param(
            {**document, "tunnel": tables[False]}, id=f"{name}-machine", marks=machine
        )
        return
    # A device is calibrated to the time that ciphers take: such a study runs alone.
    calibrates = any(device["kind"] != "host" for device in document.get("device", []))
    group = machine if name in _IN_MACHINES else studies
    yield pytest.param(document, id=name, marks=(group, *([pytest.mark.timing] * calibrates)))


@pytest.mark.parametrize("document", [case for name in STUDIES for case in _cases(name)])
def test_every_block_measures(study: Callable[[str], Any], document: Any) -> None:
    one = study(tomli_w.dumps(document))
    one.start()
    status = one.finish(limit_s=_HANGS_S)
    # 6: a point was given up after invalid trials; which ones may be is looked at below.
    assert status in {0, 6}, one.errors
    cannot_run = {
        "openvpn-kernel": CONDITIONS["no kernel of ours has ovpn_dco_v2"](),
        "masque": CONDITIONS["no tunnelmark-masque"](),
        "tailscale": CONDITIONS["no tunnelmark-tailscale-control"](),
    }
    (started,) = one.of("run_started")
    labels = {table.get("label") for table in document.get("tunnel", [])}
    assert {label for label, _reason in started["skipped"]} == {
        label for label, cannot in cannot_run.items() if cannot and label in labels
    }
    blocks = [json.loads(path.read_text()) for path in one.directory.glob("blocks/*.json")]
    assert len(blocks) == started["blocks"]
    for block in blocks:
        assert block["error"] is None, block["error"]
        proofs = [*block["proofs"], *block["baseline_proofs"]]
        assert [proof["message"] for proof in proofs if proof["verdict"] != "proved"] == []
    trials = one.trials()
    failed = {
        (check["name"], check["message"])
        for checks in trials["checks"]
        for check in json.loads(checks)
        if not check["ok"] and check["name"] not in OF_TIMING
    }
    assert failed == set()
    if not trials["valid"].any():
        # Then only a busy computer can be why: each has a check of time that failed.
        for checks in trials["checks"]:
            assert not all(check["ok"] for check in json.loads(checks))
    assert (one.directory / "report/report.html").stat().st_size > 0
    if document["name"] == "wpa2":
        _on_air(blocks)


def _on_air(blocks: list[Any]) -> None:
    """What the capture saw of 128 bytes, and that the baseline is readable there."""
    outer = []
    for block in blocks:
        (proof,), (bare,) = block["proofs"], block["baseline_proofs"]
        assert proof["encrypted_expected"]
        assert not proof["marker_seen"]
        assert bare["marker_seen"]
        assert all(layer["equal"] for layer in block["layers"])
        seen = [
            {sample["payload_bytes"]: sample["outer_packet_bytes"] for sample in one["samples"]}
            for one in (bare, proof)
        ]
        outer.append([one[128] for one in seen])
    # 24 MAC header, 8 SNAP, 20 IPv4 or 40 IPv6, 8 UDP, 128, 4 FCS; CCMP brings 16.
    assert sorted(outer) == [[[192], [208]], [[212], [228]]]
