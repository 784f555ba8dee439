"""Options of ``validate`` are data, and no type says which a command holds: what it reads is declared, and is read."""

from __future__ import annotations

import ast
from pathlib import Path

import click
import pytest

from simulator.cli.written import Argument, Option, declared
from simulator.console.run import run_app
from validate.cli import COMMANDS, CommandGroup, app
from validate.cli.command import Given

FILES = Path(__file__).parents[2] / "validate" / "cli"
ALWAYS = {"debug", "quiet"}  # read by the program, and by every remark
BY_METHOD = {"answer": "json", "grades": "trust", "processes": "jobs"}
BY_TABLE = {"run", "score"}  # files that hand what is given to others whole


def test_commands_read_the_options_that_are_declared() -> None:
    told = [each for command in COMMANDS.values() for each in command.get("commands", {"": command}).values()]
    declared: dict[str, set[str]] = {}
    for each in told:
        declared.setdefault(each["answer"].partition(":")[0], set()).update(each["options"])
    for name, options in declared.items():
        text = (FILES / f"{name}.py").read_text(encoding="utf-8")
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
        read = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "given"}
        assert not read - options - set(dir(Given)) - {"others"}, name
        read |= {option for method, option in BY_METHOD.items() if method in read}
        read |= set(
            text.replace('"', " ").replace("=", " ").replace(")", " ").replace("(", " ").split()
        )  # names in texts, as the command that asks again
        assert name in BY_TABLE or not options - read - ALWAYS, name


def commands() -> dict[str, dict]:
    """Return what is declared of each command, by its words."""
    told = {}
    for name, command in COMMANDS.items():
        told |= {f"{name} {each}".strip(): said for each, said in command.get("commands", {"": command}).items()}
    return told


def test_rules_of_what_is_missing_name_no_option_with_a_default() -> None:
    for name, command in commands().items():
        missing = {option for rule in command.get("refuses", ()) for option in rule.get("without", ())}
        assert missing <= command["options"].keys(), name
        options = declared(command["options"])
        assert not [option for option in missing if options[option].default], name


def test_a_rule_spells_an_option_as_the_command_line_does(capsys: pytest.CaptureFixture[str]) -> None:
    option = {"value": "DIR", "help": "Dumps.", "word": "--from"}
    rule = {"given": ["dumps"], "each": ["dumps"], "why": "is not read"}
    asked = {"help": "Ask.", "answer": "score:score_command", "options": {"dumps": option}, "refuses": [rule]}
    assert run_app(CommandGroup("tool", "A tool.", {"ask": asked}), "tool", ["ask", "--from", "here"]) == 2
    assert capsys.readouterr().err == "tool: --from: is not read\n"


def test_measuring_needs_the_name_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "validate", ["run", "--out", ""]) == 2
    assert capsys.readouterr().err == "validate: --out needs the name of a folder\n"


def test_help_of_arguments_needs_no_version_of_click_that_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = click.Argument.__init__

    def made_before(
        self: click.Argument, param_decls: list[str], required: bool | None = None, **attrs: object
    ) -> None:
        assert "help" not in attrs
        made(self, param_decls, required, **attrs)

    monkeypatch.setattr(click.Argument, "__init__", made_before)
    found = Argument("files", Option(help="Tables.", value="TABLE", several=True), metavar="[TABLE]...")
    assert found.record == ("[TABLE]...", "Tables.")
    assert found.nargs == -1
