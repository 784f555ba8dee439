"""The command line ``validate``: simulated times beside measured ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from simulator.console.run import run_app
from simulator.errors import InputError

__all__ = ["app", "main"]

app = typer.Typer(
    name="validate",
    help="Set simulated times beside measured ones.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _validate(context: typer.Context) -> None:
    """Set simulated times beside measured ones."""
    if context.invoked_subcommand is None:
        raise InputError("a command is needed: score or fit (--help)")


@app.command("score")
def score(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE.csv", help="Tables of measured collectives; - is standard input."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write every row with its prediction and error as CSV.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are fractions.")] = False,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="FILE", help="The machine of all rows: a path or a built-in name."),
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--machine", metavar="NAME=FILE", help="The topology of one machine of the tables; repeatable."),
    ] = None,
    strategy: Annotated[str, typer.Option("--strategy", metavar="NAME", help="What predicts.")] = "nccl",
    trust: Annotated[
        str, typer.Option("--trust", metavar="A,B", help="Grades that count; others are predicted only.")
    ] = "A,B",
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN,...", help="Group by machine, collective, decade, size or any column."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Predict every row of tables of measured collectives and show the error.

    The tables need the columns machine, n_gpus, collective, bytes and time_s; n_nodes,
    gpu_set, group_size, n_groups_concurrent, algorithm_forced and trust are read where they
    are there.  The machine of a row is the built-in topology of that name or alias.
    """
    del debug  # read from the arguments where errors are shown
    from validate.score.command import score_command

    score_command(
        tables or [],
        out=out,
        as_json=json,
        topology=topology,
        machines=machine or [],
        strategy=strategy,
        trust=trust,
        by=by,
    )


@app.command("fit")
def fit(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE.csv", help="Tables of measured collectives.")
    ] = None,
    hold_out: Annotated[
        list[str] | None,
        typer.Option("--hold-out", metavar="NAME", help="A machine that is judged and not fitted to; repeatable."),
    ] = None,
    trust: Annotated[str, typer.Option("--trust", metavar="A,B", help="Grades of the rows that are used.")] = "A,B",
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Judge each machine by a fit to all the others too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are fractions.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Fit the constants of NCCL's protocols to tables of measured collectives.

    Prints the constants as simulator/strategies/nccl/cost.py holds them, and the error on
    the rows that were fitted and on those held out.
    """
    del debug  # read from the arguments where errors are shown
    from validate.fit.command import fit_command

    fit_command(tables or [], hold_out=hold_out or [], trust=trust, leave_one_out=leave_one_out, as_json=json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run_app(app, "validate", arguments))


if __name__ == "__main__":
    main()
