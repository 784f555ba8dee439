"""The commands beside the simulation, as ``options.yaml`` declares them.  Their code is imported only when used."""

from __future__ import annotations

import typer

from simulator.cli.written import DECLARED, EPILOG, OPTIONS, SETTINGS, declared_option, with_options
from simulator.console import later

app = typer.Typer(**SETTINGS)
_QUESTION = [name for name, each in OPTIONS.items() if each.group not in ("Output", "Launch line")]

for _name, _told in DECLARED["commands"].items():
    _names = [name for word in _told["options"].split() for name in (_QUESTION if word == "*" else [word])]
    _own = {name: each if isinstance(each, str) else declared_option(each) for name, each in _told["own"].items()}
    _command = with_options(OPTIONS, *_names, **_own)(later(f"simulator.cli.{_told['answer']}"))
    app.command(_name, help=_told["help"], epilog=_told.get("epilog", EPILOG))(_command)
