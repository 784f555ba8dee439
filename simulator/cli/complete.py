"""Completion in bash, zsh and fish: the possible words, whose data are imported when needed, and the scripts."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import click
from click.shell_completion import get_completion_class, shell_complete

from simulator.console import later

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SIMULATE_COMPLETE"
_SCHEMES = ("bytes:", "sweep:8B-8GB", "op:", "copy:", "access:", "launch:", "disk:", "message:", "core:", "torch:")


def script(app: click.Command, shell: str) -> str:
    """Return the script with which *shell*, one of ``SHELLS``, completes the words of *app*."""
    found = get_completion_class(shell)
    assert found is not None
    return found(app, {}, "simulate", VARIABLE).source()


def answer_shell(asked: str, app_of: Callable[[Sequence[str]], click.Command]) -> int:
    """Print what the word may become for which a shell has *asked*, and return the status.

    *app_of* returns the command for the words before it.
    """
    found = get_completion_class(asked.partition("_")[0])
    words = [] if found is None else found(app_of([]), {}, "simulate", VARIABLE).get_completion_args()[0]
    return shell_complete(app_of(words), {}, "simulate", VARIABLE, asked)


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
