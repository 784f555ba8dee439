"""The options of ``simulate scenario``.  Their code is imported only when used."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simulator.cli.option import completion_of, own, with_options
from simulator.cli.written import OPTIONS

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 a run failed, 2 usage or input, 4 an optional dependency is missing."
)


@app.callback()
def scenarios() -> None:
    """Run a ready scenario and compare it with measurements."""


@app.command(epilog=_EPILOG)
@with_options(
    OPTIONS,
    *("name", "listed", "shown", "copy", "json", "trace", "plot", "trust_code", "quiet", "debug"),
    json="Print the answers as JSON.",
    trace="Write the timeline of the main run (Chrome trace).",
    plot="Plot it (.svg, .png or .pdf).",
    trust_code="Let the runs of a file write files, run code and open connections.",
)
def scenario(
    name: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completion_of("scenarios"),
            metavar="NAME",
            help="A built-in scenario, or your own YAML file.",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the built-in scenarios by chapter.")] = False,
    shown: Annotated[bool, typer.Option("--show", help="Print the scenario file.")] = False,
    copy: Annotated[str | None, own("DIR", "Copy the scenario and its files to DIR, to edit them.")] = None,
    **given: Any,
) -> Any:
    """Run a scenario and compare each answer with its expected value.

    simulate scenario --list

    simulate scenario one-process-eight-gpus

    simulate scenario ./mine.yaml --plot mine.svg
    """
    from simulator.cli.scenario_command import ScenarioOptions, ask_scenario

    del given["debug"]  # read from the arguments when errors are shown
    return ask_scenario(ScenarioOptions(name, listed, shown, copy, **given))
