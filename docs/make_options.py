"""Write docs/options.md, every option of every command with what it does: ``python -m docs.make_options``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simulator.cli import COMMANDS, LISTS, _app
from simulator.cli.written import GROUPS, Argument
from validate.cli import app as validate_app

PAGE = Path(__file__).resolve().parent / "options.md"
_HEAD = """# Every option

This page is generated from the commands themselves; `--help` says the same. Pages about a subject say more:
[steps.md](steps.md), [parallel.md](parallel.md), [exchanges.md](exchanges.md), [topology.md](topology.md),
[results.md](results.md), [search.md](search.md). In Python each option is an argument of the same name, `_` for `-`.
"""


def page() -> str:
    """Return the page: ``simulate`` by group, then each other command."""
    main = _params(_app([""]))
    parts = [_HEAD, "## simulate"]
    for title, (example, names) in GROUPS.items():
        parts += [f"### {title}", f"`simulate {example}`", _table(main[name] for name in names if name in main)]
    for name in (*COMMANDS[: -len(LISTS)], *LISTS):
        command: Any = _app([name])
        command = getattr(command, "commands", {}).get(name, command)
        parts += [f"## simulate {name}", _first(command), _table(_params(command).values())]
    for name, command in sorted(getattr(validate_app, "commands", {}).items()):
        for words, each in _with_parts(f"validate {name}", command):
            parts += [f"## {words}", _first(each), _table(_params(each).values())]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _with_parts(words: str, command: Any) -> Iterable[tuple[str, Any]]:
    """Yield *command*, or the commands of which it is made."""
    parts = getattr(command, "commands", None)
    if parts is None:
        yield words, command
    else:
        for name, part in sorted(parts.items()):
            yield from _with_parts(f"{words} {name}", part)


def _params(command: Any) -> Mapping[str, Any]:
    return {param.name: param for param in command.params if not getattr(param, "hidden", False)}


def _first(command: Any) -> str:
    """Return the first paragraph of the help of *command*."""
    return " ".join((command.help or "").split("\n\n")[0].split())


def _table(params: Iterable[Any]) -> str:
    rows = []
    for param in params:
        spelt = param.opts + param.secondary_opts if param.param_type_name == "option" else [param.metavar]
        value = f" {param.metavar}" if param.metavar and param.param_type_name == "option" else ""
        said = param.record[1] if isinstance(param, Argument) else param.help
        text = " ".join((said or "").split()).replace("|", "\\\\|")
        default = param.default
        if isinstance(default, str | int | float) and not isinstance(default, bool) and "Default" not in text:
            text += f" Default: {default}."
        name = f"{', '.join(spelt)}{value}".replace("|", "\\|")
        rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
