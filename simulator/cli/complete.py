"""Completion in bash, zsh and fish: the possible words, and the scripts that ask for them.

A shell runs ``simulate`` with ``_SIMULATE_COMPLETE`` and the words so far in its environment.  Typer finds the option
to complete, and the functions here return its values.  Their data are imported only when needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SIMULATE_COMPLETE"
_SCHEMES = ("bytes:", "sweep:8B-8GB", "op:", "copy:", "access:", "launch:", "disk:", "message:", "core:", "torch:")


def script(shell: str) -> str:
    """Return the completion script for *shell*; raises InputError if the shell is unknown."""
    from typer.completion import (  # type: ignore[attr-defined]  # Typer re-exports it from a private module
        get_completion_script,
    )

    from simulator.cli.options import parse_choice

    known = parse_choice("completion", shell, _SHELLS)
    return str(get_completion_script(prog_name="simulate", complete_var=_VARIABLE, shell=known))


def written_so_far() -> list[str]:
    """Return the words before the one to complete, without the program's name.

    This also makes the shells known to Typer.
    """
    from typer.completion import completion_init  # type: ignore[attr-defined]  # as above

    completion_init()
    if "COMP_WORDS" in os.environ:
        number = os.environ.get("COMP_CWORD", "")
        return os.environ["COMP_WORDS"].split("\n")[1 : int(number) if number.isdigit() else None]
    given = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = given.split()
    return words[1:] if given.endswith(" ") else words[1:-1]


def _one_of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _several_of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        there = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in there]

    return complete


def _machines() -> Iterable[str]:
    from simulator.topology.catalogue import builtin_topologies

    return builtin_topologies()


def _strategies() -> Iterable[str]:
    from simulator.collectives.registry import strategy_names

    return [*strategy_names(named_only=True), "all"]


def _networks() -> Iterable[str]:
    from simulator.workload.zoo.registry import network_names

    return [*network_names(), *_SCHEMES]


def _fabrics() -> Iterable[str]:
    from simulator.topology.catalogue import load_part, part_names
    from simulator.topology.parts import NETWORK_LINKS, LinkPart

    parts = {name: load_part(name) for name in part_names("link")}
    return [name for name, part in parts.items() if isinstance(part, LinkPart) and part.of in NETWORK_LINKS]


def _gpu_models() -> Iterable[str]:
    from simulator.topology.catalogue import part_names

    return part_names("gpu")


def _part_kinds() -> Iterable[str]:
    from simulator.cli.listing import PART_KINDS

    return PART_KINDS


def _sample_kinds() -> Iterable[str]:
    from simulator.workload.zoo.registry import find_entry, network_names

    return dict.fromkeys(find_entry(name).sample for name in network_names())


def _scenarios() -> Iterable[str]:
    from simulator.scenarios.catalogue import builtin_scenarios

    return builtin_scenarios()


def _precisions() -> Iterable[str]:
    from simulator.questions.options import POLICIES

    return POLICIES


def _optimizers() -> Iterable[str]:
    from simulator.questions.options import OPTIMIZERS

    return OPTIMIZERS


def _modes() -> Iterable[str]:
    from simulator.questions.options import MODES

    return MODES


def _collectives() -> Iterable[str]:
    from simulator.workload.collective import COLLECTIVES

    return COLLECTIVES


machines, strategies = _several_of(_machines), _several_of(_strategies)
networks, fabrics, scenarios = _one_of(_networks), _one_of(_fabrics), _one_of(_scenarios)
precisions, optimizers, modes = _one_of(_precisions), _one_of(_optimizers), _one_of(_modes)
collectives, gpu_models = _one_of(_collectives), _one_of(_gpu_models)
part_kinds, sample_kinds = _one_of(_part_kinds), _one_of(_sample_kinds)
