"""The options of ``simulate machines``, ``networks``, ``parts`` and ``strategies``."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli.complete import gpu_models, part_kinds, sample_kinds

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="WORD", help="Words in the name or description.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document with all figures.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.callback()
def lists() -> None:
    """List built-in machines, networks, parts and strategies."""


@app.command()
def machines(
    words: Words = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Machines with this GPU: h100, v100-sxm2.", autocompletion=gpu_models),
    ] = None,
    gpus: Annotated[str | None, typer.Option(metavar="COUNT", help="Machines with this many GPUs in total.")] = None,
    nodes: Annotated[str | None, typer.Option(metavar="COUNT", help="Machines with this many nodes.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the built-in machines that --topology takes by name.

    simulate machines --gpu h100 --gpus 8
    """
    del debug  # read from the arguments when errors are shown
    from simulator.cli.listing import list_machines

    list_machines(words or (), gpu=gpu, gpus=gpus, nodes=nodes, json_wanted=json)


@app.command()
def networks(
    words: Words = None,
    sample: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Networks for images, sequences, ...", autocompletion=sample_kinds),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the built-in networks that --workload takes, with the sizes that --set changes.

    simulate networks llama
    """
    del debug
    from simulator.cli.listing import list_networks

    list_networks(words or (), sample=sample, json_wanted=json)


@app.command()
def parts(
    words: Words = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="gpu, cpu, switch, nic, storage, link.", autocompletion=part_kinds),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the built-in parts of machines.

    simulate parts --kind gpu volta
    """
    del debug
    from simulator.cli.listing import list_parts

    list_parts(words or (), kind=kind, json_wanted=json)


@app.command()
def strategies(words: Words = None, json: Json = False, debug: Debug = False) -> None:
    """List the exchange strategies.

    simulate strategies ring
    """
    del debug
    from simulator.cli.listing import list_strategies

    list_strategies(words or (), json_wanted=json)
