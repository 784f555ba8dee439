"""The commands beside the simulation, as ``options.yaml`` declares them.  Their code is imported only when used."""

import typer

from simulator.cli.written import DECLARED, EPILOG, OPTIONS, SETTINGS, declared, with_options
from simulator.console import later

app = typer.Typer(**SETTINGS)
_QUESTION = [name for name, each in OPTIONS.items() if each.group not in ("Output", "Launch line")]

for _name, _told in DECLARED["commands"].items():
    _names = [name for word in _told["options"].split() for name in (_QUESTION if word == "*" else [word])]
    _command = with_options(later(f"simulator.cli.{_told['answer']}"), declared(_told["own"], _names))
    app.command(_name, help=_told["help"], epilog=_told.get("epilog", EPILOG))(_command)
