"""Completion in bash, zsh and fish: the possible words, whose data are imported when needed, and the scripts."""

import os
from collections.abc import Callable, Iterable, Mapping

from simulator.console import later

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SIMULATE_COMPLETE"
_SCHEMES = ("bytes:", "sweep:8B-8GB", "op:", "copy:", "access:", "launch:", "disk:", "message:", "core:", "torch:")


def script(shell: str) -> str:
    """Return the completion script for *shell*, one of ``SHELLS``."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # Typer re-exports it from a private module

    return str(get_completion_script(prog_name="simulate", complete_var=_VARIABLE, shell=shell))


def written_so_far() -> list[str]:
    """Return the words before the one to complete, without the program's; Typer knows the shells from here on."""
    from typer.completion import completion_init  # type: ignore[attr-defined]  # as above

    completion_init()
    if "COMP_WORDS" in os.environ:
        number = os.environ.get("COMP_CWORD", "")
        return os.environ["COMP_WORDS"].split("\n")[1 : int(number) if number.isdecimal() else None]
    given = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = given.split()
    return words[1:] if given.endswith(" ") else words[1:-1]


def _fabrics() -> Iterable[str]:
    from simulator.topology.catalogue import load_part, part_names
    from simulator.topology.parts import NETWORK_LINKS, LinkPart

    parts = {name: load_part(name) for name in part_names("link")}
    return [name for name, part in parts.items() if isinstance(part, LinkPart) and part.of in NETWORK_LINKS]


def _sample_kinds() -> Iterable[str]:
    from simulator.workload.zoo.registry import find_entry, network_names

    return dict.fromkeys(find_entry(name).sample for name in network_names())


_SEVERAL = ("machines", "strategies")  # separated by commas
_MORE: Mapping[str, tuple[str, ...]] = {"strategies": ("all",), "networks": _SCHEMES}
_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "machines": later("simulator.topology.catalogue:builtin_topologies"),
    "strategies": later("simulator.collectives.registry:strategy_names", named_only=True),
    "networks": later("simulator.workload.zoo.registry:network_names"),
    "fabrics": _fabrics,
    "scenarios": later("simulator.scenarios.file:builtin_scenarios"),
    "gpu_models": later("simulator.topology.catalogue:part_names", "gpu"),
    "part_kinds": later("simulator.topology.catalogue:PART_KINDS"),
    "sample_kinds": _sample_kinds,
    "precisions": later("simulator.questions.options:POLICIES"),
    "optimizers": later("simulator.questions.options:OPTIMIZERS"),
    "modes": later("simulator.questions.options:MODES"),
    "collectives": later("simulator.workload:COLLECTIVES"),
}


def completed(what: str, incomplete: str) -> list[str]:
    """Return what *incomplete* may become: the name of one of *what*, or of several with commas between."""
    before, comma, last = incomplete.rpartition(",") if what in _SEVERAL else ("", "", incomplete)
    names = [*_NAMES[what](), *_MORE.get(what, ())]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in before.split(",")]
