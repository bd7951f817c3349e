"""The command line: exit statuses, one line an error, help."""

import json
import re

import pytest

from tunnelmark.cli import main


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "plan",
        "merge",
        "report",
        "export",
        "studies",
        "doctor",
        "clean",
        "overhead",
        "analyse",
        "compare",
        "serve",
        "audit",
        "vm",
        "version",
    ],
)
def test_every_command_has_help_with_an_example(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main.call([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage: tunnelmark" in text
    assert command == "vm" or "example" in text


def test_the_first_help_has_all_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["--help"]) == 0
    text = capsys.readouterr().out
    for status in ("0", "1", "2", "3", "4", "5", "6", "130"):
        assert f"\n    {status}  " in text, status


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["run"], 2, "STUDY"),
        (["run", "no-such-study"], 2, "nor a built-in study"),
        (["report", "/nowhere"], 5, "is not a result directory"),
        (["overhead", "carrier-pigeon"], 2, "openvpn"),
        (["overhead", "openvpn", "--payload", "0"], 2, "--payload is 0"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_a_mistake_is_one_line_and_a_status(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    assert main.call(arguments) == status
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err + captured.out


def test_overhead_as_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["overhead", "openvpn", "--json", "--set", "cipher=AES-256-CBC"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outer_packet_bytes"] == [1120]
    assert sum(layer["bytes"] for layer in document["layers"]) == document["overhead_bytes"]


def test_audit_lists_findings_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["audit", "--json", "--study", "pptp-vs-ssl-2011"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {json.loads(line)["study"] for line in lines} == {"pptp-vs-ssl-2011"}


def test_studies_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["studies", "list"]) == 0
    assert "quickstart" in capsys.readouterr().out
    assert main.call(["studies", "show", "quickstart"]) == 0
    assert 'name = "quickstart"' in capsys.readouterr().out


def test_a_check_of_a_study_says_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["studies", "check", "quickstart"]) == 0
    assert re.match(
        r"quickstart: 2 blocks, 20 points, 80 trials, about 5 min \d\d s\n",
        capsys.readouterr().out,
    )
