"""The options of ``simulate machines``, ``networks``, ``parts`` and ``strategies``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simulator.cli.option import own, with_options
from simulator.cli.written import OPTIONS, CommandOptions

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="WORD", help="Words in the name or description.", show_default=False),
]
_JSON = "Print one JSON document with all figures."


@app.callback()
def lists() -> None:
    """List built-in machines, networks, parts and strategies."""


def _asked(title: str, words: Words, json: bool, debug: bool, **which: str | None) -> Any:  # noqa: ARG001
    """Return the list called *title*; *debug* is read from the arguments when errors are shown."""
    from simulator.cli import listing
    from simulator.cli.output import Asked

    return Asked(CommandOptions(json=json), lambda _: getattr(listing, f"list_{title}")(words or (), **which))


@app.command()
@with_options(
    OPTIONS,
    *("words", "gpu", "gpus", "nodes", "json", "debug"),
    gpus=("COUNT", "Machines with this many GPUs in total."),
    nodes=("COUNT", "Machines with this many nodes."),
    json=_JSON,
)
def machines(
    words: Words = None,
    gpu: Annotated[str | None, own("MODEL", "Machines with this GPU: h100, v100-sxm2.", "gpu_models")] = None,
    **given: Any,
) -> Any:
    """List the built-in machines that --topology takes by name.

    simulate machines --gpu h100 --gpus 8
    """
    return _asked("machines", words, gpu=gpu, **given)


@app.command()
@with_options(OPTIONS, "words", "sample", "json", "debug", json=_JSON)
def networks(
    words: Words = None,
    sample: Annotated[str | None, own("KIND", "Networks for images, sequences, ...", "sample_kinds")] = None,
    **given: Any,
) -> Any:
    """List the built-in networks that --workload takes, with the sizes that --set changes.

    simulate networks llama
    """
    return _asked("networks", words, sample=sample, **given)


@app.command()
@with_options(OPTIONS, "words", "kind", "json", "debug", json=_JSON)
def parts(
    words: Words = None,
    kind: Annotated[str | None, own("KIND", "gpu, cpu, switch, nic, storage, link.", "part_kinds")] = None,
    **given: Any,
) -> Any:
    """List the built-in parts of machines.

    simulate parts --kind gpu volta
    """
    return _asked("parts", words, kind=kind, **given)


@app.command()
@with_options(OPTIONS, "words", "json", "debug", json=_JSON)
def strategies(words: Words = None, **given: Any) -> Any:
    """List the exchange strategies.

    simulate strategies ring
    """
    return _asked("strategies", words, **given)
