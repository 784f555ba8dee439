"""Completion in bash, zsh and fish: the possible words, whose data are imported when needed, and the scripts."""

from collections.abc import Callable, Iterable, Sequence

import click
from click.shell_completion import get_completion_class, shell_complete

from simulator.console import later

SHELLS = ("bash", "zsh", "fish")


def script(app: click.Command, shell: str, program: str) -> str:
    """Return the script with which *shell* completes the words of *app*, called *program*; raises InputError."""
    found = get_completion_class(later("simulator.cli.options:parse_choice")("completion", shell, SHELLS))
    assert found is not None
    return str(found(app, {}, program, f"_{program.upper()}_COMPLETE").source())


def answer_shell(asked: str, app_of: Callable[[Sequence[str]], click.Command], program: str) -> int:
    """Print what the word may become for which a shell has *asked*, and return the status.

    *app_of* returns the command for the words before it.
    """
    found = get_completion_class(asked.partition("_")[0])
    called = program, f"_{program.upper()}_COMPLETE"
    words = [] if found is None else found(app_of([]), {}, *called).get_completion_args()[0]
    return shell_complete(app_of(words), {}, *called, asked)


def strategies() -> Iterable[str]:
    """Return the strategies that have a name, and ``all``."""
    from simulator.collectives.registry import strategy_names

    return [*strategy_names(named_only=True), "all"]


def fabrics() -> Iterable[str]:
    """Return the links between machines."""
    from simulator.topology.catalogue import load_part, part_names
    from simulator.topology.parts import NETWORK_LINKS, LinkPart

    parts = {name: load_part(name) for name in part_names("link")}
    return [name for name, part in parts.items() if isinstance(part, LinkPart) and part.of in NETWORK_LINKS]


def sample_kinds() -> Iterable[str]:
    """Return what samples of networks are."""
    from simulator.workload.zoo.registry import find_entry, network_names

    return dict.fromkeys(find_entry(name).sample for name in network_names())


def completed(incomplete: str, names_of: str, also: Sequence[str], *, listed: bool) -> list[str]:
    """Return what *incomplete* may become: a value of an option, or several with commas between where *listed*.

    *names_of*: the function that returns its values and what it is given, apart by spaces; *also*: further values.
    """
    before, comma, last = incomplete.rpartition(",") if listed else ("", "", incomplete)
    call, *given = names_of.split()
    names = [*later(call)(*given), *also]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in before.split(",")]
