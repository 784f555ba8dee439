"""The options of ``simulate scenario``.  Their code is imported only when used."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli import complete

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 a run failed, 2 usage or input, 4 an optional dependency is missing."
)


@app.callback()
def scenarios() -> None:
    """Run a ready scenario and compare it with measurements."""


@app.command(epilog=_EPILOG)
def scenario(
    name: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete.scenarios, metavar="NAME", help="A built-in scenario, or your own YAML file."
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the built-in scenarios by chapter.")] = False,
    shown: Annotated[bool, typer.Option("--show", help="Print the scenario file.")] = False,
    copy: Annotated[
        str | None, typer.Option(metavar="DIR", help="Copy the scenario and its files to DIR, to edit them.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the timeline of the main run (Chrome trace)."),
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Plot it (.svg, .png or .pdf).")] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Let the runs of a file write files, run code and open connections.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on standard error.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run a scenario and compare each answer with its expected value.

    simulate scenario --list

    simulate scenario one-process-eight-gpus

    simulate scenario ./mine.yaml --plot mine.svg
    """
    del debug  # read from the arguments when errors are shown
    from simulator.cli.scenario_command import Wanted, run_scenario

    wanted = Wanted(name, listed, shown, copy, json, trace, plot, quiet, trust_code)
    run_scenario(wanted)
