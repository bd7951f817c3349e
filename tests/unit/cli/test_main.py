"""The command line: exit statuses, one line an error, help."""

import json
import re
from collections.abc import Iterator

import click
import pytest

from tunnelmark.cli import main

COMMANDS = main.tunnelmark.list_commands(click.Context(main.tunnelmark))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main.call([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage: tunnelmark" in text
    assert "example" in text


def _contexts(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Yield a context for a command and for each command in it, on a terminal of 80 columns."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80)
    yield context
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _contexts(found, inner, context)


CONTEXTS = [*_contexts(main.tunnelmark, "tunnelmark")]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)
def test_help_cuts_nothing_off_and_describes_each_option(context: click.Context) -> None:
    lines = context.get_help().splitlines()
    assert [one for one in lines if one.endswith("...") and not one.startswith("Usage: ")] == []
    options = [p for p in context.command.get_params(context) if isinstance(p, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)
def test_help_has_an_example_and_80_columns(context: click.Context) -> None:
    text = context.get_help()
    assert "example" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


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
        (["audit", "--study", "dymora-2013"], 2, "did you mean dymora-2014?"),
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


def test_a_shell_can_complete_a_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TUNNELMARK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "tunnelmark stud")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().out) == (0, "plain,studies\n")
