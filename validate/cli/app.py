"""The command line ``validate``: simulated times beside measured ones."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.errors import InputError
from validate.cli.app_measure import cluster, describe, import_, run
from validate.cli.options import EPILOG, Debug, Json, Quiet

__all__ = ["app"]

app = typer.Typer(
    name="validate",
    help="Set simulated times beside measured ones.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


@app.callback(invoke_without_command=True)
def _validate(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Set simulated times beside measured ones."""
    if version:
        from simulator import __version__

        typer.echo(f"validate {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise InputError("a command is needed: run, compare, score, calibrate, import, cluster or fit (--help)")


@app.command("score", epilog=EPILOG)
def score(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE.csv", help="Tables of measurements; - is standard input."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write every row with its prediction and error as CSV.")
    ] = None,
    json: Json = False,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="FILE", help="The machine of all rows: a path or a built-in name."),
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--machine", metavar="NAME=FILE", help="The topology of one machine of the tables; repeatable."),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="NAME", help="What predicts collectives; nccl if not said.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="[NAME=]PART",
            help="The GPU part of one device of tables of operators, or of all; repeatable.",
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="ROWS",
            help="Fit each device's constants to so many of its rows, and show the error on the others.",
        ),
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help="Use what validate calibrate wrote.")
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option("--baselines", metavar="FILE", help="Predictions of others, by row_id, to show beside."),
    ] = None,
    trust: Annotated[
        str, typer.Option("--trust", metavar="A,B", help="Grades that count; others are predicted only.")
    ] = "A,B",
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="COLUMN,...", help="Group by machine, collective, decade, size, op or any column."
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict every row of tables of measurements and show the error.

    The columns say what a table holds.  Collectives: machine, n_gpus, collective, bytes and time_s.
    Operators: device, op, dtype, time_s and the sizes of the operator.
    Steps of networks: machine, model, batch_per_gpu and step_time_s.
    A machine is the built-in topology of that name or alias, a device the built-in part.
    docs/scoring.md explains all columns.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.score import score_command

    score_command(
        tables or [],
        out=out,
        as_json=json,
        topology=topology,
        machines=machine or [],
        strategy=strategy,
        devices=device or [],
        calibrate=calibrate,
        calibration=calibration,
        baselines=baselines,
        trust=trust,
        by=by,
        quiet=quiet,
    )


@app.command("fit", epilog=EPILOG)
def fit(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE.csv", help="Tables of measured collectives, or of operators.")
    ] = None,
    hold_out: Annotated[
        list[str] | None,
        typer.Option(
            "--hold-out", metavar="NAME", help="A machine (or device) that is judged and not fitted to; repeatable."
        ),
    ] = None,
    leave_one_out: Annotated[
        str | None,
        typer.Option(
            "--leave-one-out",
            metavar="place|generation",
            help="Judge each device or machine, or each generation of GPUs, by a fit to all others.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="FAMILY,...",
            help="gemm, tensor_product, attention, memory_bound, convolution, recurrence, nccl; else all.",
        ),
    ] = None,
    jobs: Annotated[str, typer.Option("--jobs", metavar="COUNT", help="Processes that fit at once.")] = "1",
    write: Annotated[
        bool, typer.Option("--write", help="Write the constants into the files that models read.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit the shared constants to tables of measurements.

    Tables of collectives fit the constants of NCCL's protocols, tables of operators those of the
    cost models of devices.  Prints the constants, how sure each is, and the error on rows that
    were fitted and on those that were not.  docs/constants.md lists them, and which rows count.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.fit import fit_tables

    fit_tables(
        tables or [],
        hold_out=hold_out or [],
        leave_one_out=leave_one_out,
        only=only,
        jobs=jobs,
        write=write,
        as_json=json,
        quiet=quiet,
    )


@app.command("calibrate", epilog=EPILOG)
def calibrate(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="MEASUREMENTS", help="The folder of validate run, or a table of operators; - is standard input."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="PART", help="What was measured; of a folder where it does not say itself."),
    ] = None,
    topology: Annotated[
        str | None, typer.Option("--topology", metavar="FILE", help="Of a folder: the machine that was measured.")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help="Write the YAML there.")] = None,
    trust: Annotated[str, typer.Option("--trust", metavar="A,B", help="Grades of the rows that are used.")] = "A,B",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit the few constants of one device to what was measured of it.

    Writes a YAML file for simulate --calibration, with the points that it came from.  A table gives the
    constants of its operators; a folder those of its host too, from launches and steps.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.calibrate_folder import calibrate_folder, is_folder

    if is_folder(table) or topology is not None:
        calibrate_folder(table, device=device, topology=topology, out=out, trust=trust, quiet=quiet)
        return
    from validate.cli.calibrate import calibrate_command

    calibrate_command(table, device=device, out=out, trust=trust, quiet=quiet)


@app.command("compare", epilog=EPILOG)
def compare(
    folder: Annotated[
        str | None, typer.Argument(metavar="MEASURED/", help="The folder that validate run wrote.")
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="FILE", help="The machine that was measured: a path or a built-in name."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="[NAME=]PART", help="The part of a device of the tables; repeatable."),
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help="Use what validate calibrate wrote.")
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="ROWS|TIME",
            help="Fit to so many operators (50), or to what is measured in a time (120s); judge on the others.",
        ),
    ] = None,
    calibrated_by: Annotated[
        str | None,
        typer.Option("--calibrated-by", metavar="SHORT/", help="Fit to this folder; judge on what it did not ask."),
    ] = None,
    again: Annotated[
        str | None,
        typer.Option("--with", metavar="AGAIN/", help="Show the drift to another measurement of the same machine."),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE.html", help="Write all of it as one page, with plots.")
    ] = None,
    trust: Annotated[
        str, typer.Option("--trust", metavar="A,B", help="Grades that count; others are predicted only.")
    ] = "A,B",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Set a folder of measurements beside its prediction.

    Shows errors by class with how sure they are, beside the spread of the measurement; what stands out; the
    rows that are furthest off and what the model leaves out there; and what calibrating would mend.
    docs/compare.md explains it.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.compare import compare_command

    compare_command(
        folder,
        topology=topology,
        devices=device or [],
        calibration=calibration,
        calibrate=calibrate,
        calibrated_by=calibrated_by,
        again=again,
        report=report,
        trust=trust,
        as_json=json,
        quiet=quiet,
    )


for _name, _command in (("run", run), ("cluster", cluster), ("describe", describe), ("import", import_)):
    app.command(_name, epilog=EPILOG)(_command)
