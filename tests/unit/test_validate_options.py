"""Options of ``validate`` are data, and no type says which a command holds: what it reads is declared, and is read."""

from __future__ import annotations

import ast
from pathlib import Path

from validate.cli import COMMANDS
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
