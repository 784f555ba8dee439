"""Commands of ``validate`` as functions of the options that are given, so that what they raise reaches the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.console import later
from validate.cli import COMMANDS, declared
from validate.cli.command import Given


def ask(command: str, **said: Any) -> object:
    """Run *command* with the options *said*, the others at their defaults, and return what it returns."""
    told = COMMANDS[command]
    usual = {name: () if option.several else option.default for name, option in declared(told["options"]).items()}
    assert not said.keys() - usual.keys()
    said = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    return later(f"validate.cli.{told['answer']}")(Given(others=(), **{**usual, **said}))


def score_command(files: Sequence[str], **said: Any) -> object:
    """Run ``validate score`` on *files*."""
    return ask("score", files=tuple(files), **said)


def calibrate_command(file: str, **said: Any) -> object:
    """Run ``validate calibrate`` on *file*."""
    return ask("calibrate", measurements=file, **said)
