"""Cost models: written and read, strictly, and chosen by what they hold for."""

from dataclasses import replace

import pytest

from made_costs import MODEL
from tunnelmark.model.costs import CipherRate, CostedTunnel, choose, parse_costs, to_toml
from tunnelmark.model.errors import StudyError
from tunnelmark.model.trial import DriverSpec


def tunnel(**columns: object) -> DriverSpec:
    return DriverSpec("openvpn", "openvpn", {}, columns)


HOST = DriverSpec("host", "host", {})


def test_what_is_written_is_read_again() -> None:
    assert parse_costs(to_toml(MODEL), "costs.toml") == MODEL


def test_a_file_may_have_the_rate_of_its_machine_and_older_ones_have_none() -> None:
    assert "rate" not in to_toml(MODEL)
    rate = CipherRate("AES-256-GCM", 4200.5, 190.25)
    rated = replace(MODEL, provenance=replace(MODEL.provenance, rate=rate))
    text = to_toml(rated)
    assert parse_costs(text, "costs.toml") == rated
    # Those of before have OpenSSL's.
    assert parse_costs(text.replace('library = "OpenSSL"\n', ""), "costs.toml") == rated
    with pytest.raises(StudyError, match=r"provenance\.rate\.plain_mbyte_s is 0, must be above 0"):
        parse_costs(text.replace("190.25", "0.0"), "costs.toml")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("format = 1", "format = 2", "costs.toml: format is 2, must be 1"),
        ("servers = 2", "servers = 0", "server.servers is 0, must be from 1 to 1024"),
        ("servers = 2", "cores = 2", "server.cores: Unexpected keyword argument"),
        ("estimate = 21500.5", "estimate = -1.0", "client.wrap.packet_ns.estimate is -1"),
        ("low = 20000.0", "low = 22000.0", "must be in this order"),
        ("estimate = 500.0", "estimate = 0.5", "most_waiting.estimate is 0.5, must be from 1"),
        ("trials = 40", "trials = 0", "provenance.trials is 0"),
        ("[device]", "[device", "is not TOML"),
        ("estimate = 900.0", "estimate = nan", "client.wrap.byte_ps"),
    ],
)
def test_what_is_wrong_is_named(before: str, after: str, words: str) -> None:
    text = to_toml(MODEL)
    assert before in text
    with pytest.raises(StudyError, match=r"costs\.toml") as failed:
        parse_costs(text.replace(before, after, 1), "costs.toml")
    assert words in str(failed.value)


def test_a_model_holds_where_its_columns_are_the_same() -> None:
    asked = {"cipher": "AES-256-GCM", "threads": 1, "lzo": False, "port": 1194}
    assert choose([MODEL], tunnel(**asked), HOST) is MODEL
    assert choose([MODEL], tunnel(**{**asked, "cipher": "BF-CBC"}), HOST) is None
    assert choose([MODEL], tunnel(cipher="AES-256-GCM"), HOST) is None
    assert choose([MODEL], tunnel(**asked), DriverSpec("rpi", "rpi", {})) is None


def test_of_several_the_first_that_holds_counts() -> None:
    any_openvpn = replace(MODEL, tunnel=CostedTunnel("openvpn"))
    asked = tunnel(cipher="AES-256-GCM", threads=1, lzo=False)
    assert choose([any_openvpn, MODEL], asked, HOST) is any_openvpn
    assert choose([MODEL, any_openvpn], asked, HOST) is MODEL
    assert choose([MODEL, any_openvpn], tunnel(cipher="none"), HOST) is any_openvpn
