"""The commands beside the simulation, as ``options.yaml`` declares them.  Their code is imported only when used."""

import click

from simulator.cli.written import DECLARED, OPTIONS, command_of, declared
from simulator.console import later

app = click.Group("simulate")
_QUESTION = [name for name, each in OPTIONS.items() if each.group not in ("Output", "Launch line")]

for _name, _told in DECLARED["commands"].items():
    _names = [name for word in _told["options"].split() for name in (_QUESTION if word == "*" else [word])]
    _own, _said = declared(_told["own"], _names), {key: _told[key] for key in ("help", "epilog") if key in _told}
    app.add_command(command_of(_name, later(f"simulator.cli.{_told['answer']}"), _own, **_said))
