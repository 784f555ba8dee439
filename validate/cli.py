"""The command line ``validate``: simulated times beside measured ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from simulator.console.run import run_app
from simulator.errors import InputError

__all__ = ["app", "main"]

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)

app = typer.Typer(
    name="validate",
    help="Set simulated times beside measured ones.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)

_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are fractions.")]


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


@app.command("score", epilog=_EPILOG)
def score(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE.csv", help="Tables of measurements; - is standard input."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write every row with its prediction and error as CSV.")
    ] = None,
    json: _Json = False,
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
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Predict every row of tables of measurements and show the error.

    The columns say what a table holds.  Collectives: machine, n_gpus, collective, bytes and time_s.
    Operators: device, op, dtype, time_s and the sizes of the operator.
    Steps of networks: machine, model, batch_per_gpu and step_time_s.
    A machine is the built-in topology of that name or alias, a device the built-in part.
    docs/scoring.md explains all columns.
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
        devices=device or [],
        calibrate=calibrate,
        calibration=calibration,
        baselines=baselines,
        trust=trust,
        by=by,
        quiet=quiet,
    )


@app.command("fit", epilog=_EPILOG)
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
    trust: Annotated[
        str | None,
        typer.Option("--trust", metavar="A,B", help="Grades of the rows that are used: A,B; of operators A."),
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out",
            "--leave-one-device-out",
            help="Judge each machine (or device) by a fit to all the others too.",
        ),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="CLASS,...",
            help="Of operators: gemm, tensor_product, attention, memory_bound, convolution, recurrence.",
        ),
    ] = None,
    jobs: Annotated[str, typer.Option("--jobs", metavar="COUNT", help="Processes that fit at once.")] = "1",
    json: _Json = False,
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Fit the shared constants to tables of measurements.

    Tables of collectives fit the constants of NCCL's protocols, tables of operators those of the
    cost models of devices.  Prints the constants as the code holds them, and the error on the rows that
    were fitted and on those held out.
    """
    del debug  # read from the arguments where errors are shown
    from validate.fit.choose import fit_tables

    fit_tables(
        tables or [],
        hold_out=hold_out or [],
        trust=trust,
        leave_one_out=leave_one_out,
        only=only,
        jobs=jobs,
        as_json=json,
        quiet=quiet,
    )


@app.command("calibrate", epilog=_EPILOG)
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
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Fit the few constants of one device to what was measured of it.

    Writes a YAML file for simulate --calibration, with the points that it came from.  A table gives the
    constants of its operators; a folder those of its host too, from launches and steps.
    """
    del debug  # read from the arguments where errors are shown
    from validate.compare.calibrate import calibrate_folder, is_folder

    if is_folder(table) or topology is not None:
        calibrate_folder(table, device=device, topology=topology, out=out, trust=trust, quiet=quiet)
        return
    from validate.calibrate.command import calibrate_command

    calibrate_command(table, device=device, out=out, trust=trust, quiet=quiet)


@app.command("compare", epilog=_EPILOG)
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
    json: _Json = False,
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Set a folder of measurements beside its prediction.

    Shows errors by class with how sure they are, beside the spread of the measurement; what stands out; the
    rows that are furthest off and what the model leaves out there; and what calibrating would mend.
    docs/compare.md explains it.
    """
    del debug  # read from the arguments where errors are shown
    from validate.compare.command import compare_command

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


@app.command("run", epilog=_EPILOG)
def run(
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="FILE", help="What this machine is: a path or a built-in name."),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="The folder of the tables; what it holds already is kept.")
    ] = "measured",
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="GROUP,...", help="ops, launch, memory, copies, overlap, steps, storage, collectives."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cuda:0 or cpu; the first GPU if not said.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Begin no case after this time: 120s, 5min.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="The machine's name in the tables.")
    ] = None,
    within: Annotated[
        str | None,
        typer.Option("--within", metavar="PART", help="Repeat until the median is known to this: 1% if not said."),
    ] = None,
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Measure this machine: operators, steps, copies, memory, launches, collectives.

    Needs torch.  Every row is on the disk when it is measured; the same command goes on where an
    interrupted one ended.  run.json holds what the machine reports of itself, and what was not
    measured and why.  Where torch is all there is, python -m validate.measure does the same,
    without --topology.  A topology that the machine contradicts is refused before anything is measured.
    """
    del debug  # read from the arguments where errors are shown
    from validate.run.command import run_command

    status = run_command(
        out=out,
        topology=topology,
        only=only,
        device=device,
        budget=budget,
        machine=machine,
        within=within,
        quiet=quiet,
    )
    if status:
        raise typer.Exit(status)


@app.command("cluster", epilog=_EPILOG)
def cluster(
    nodes: Annotated[str, typer.Option("--nodes", metavar="N,...", help="Hosts: 4, 2,4 or 2-6.")] = "4",
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="RATE,...", help="Of each link, one way: 100Mbit/s (if not said), 1Gbit/s."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help="From host to host, one way, on top: 1ms.")
    ] = None,
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="SIZE,...", help="Bytes that each host exchanges.")
    ] = "1MB,4MB,16MB",
    strategies: Annotated[
        str,
        typer.Option(
            "--strategies",
            metavar="NAME,...",
            help="ring and broadcast (gloo), parameter-server (-N: N servers; -colocated: one on each host).",
        ),
    ] = "ring,parameter-server,parameter-server-colocated,broadcast",
    repeat: Annotated[str, typer.Option("--repeat", metavar="COUNT", help="Times of each case, at most.")] = "15",
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to measure, about.")] = "10 min",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Predict with the rate that a plain TCP stream reached.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Write collectives.csv, cluster.json and a topology for each rate."),
    ] = None,
    topology: Annotated[
        str | None, typer.Option("--topology", metavar="FILE", help="Write the topology, for simulate --topology.")
    ] = None,
    json: _Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands, and run none.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what a crashed run has left, and do no more.")] = False,
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Measure a real network of hosts on this machine, and predict the same.

    Hosts are network namespaces of Linux, joined by veth pairs and a bridge, each link with a rate
    (tc tbf). torch.distributed with gloo, and push and pull over TCP, run on them; the
    simulator predicts the same from the rate alone. All of it is removed at the end.
    Needs ip and tc, the right to make namespaces, and torch. docs/cluster.md explains it.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cluster.command import cluster_command

    cluster_command(
        nodes=nodes,
        rates=rate or ["100Mbit/s"],
        sizes=sizes,
        strategies=strategies,
        delay=delay,
        repeat=repeat,
        budget=budget,
        calibrate=calibrate,
        out=out,
        topology=topology,
        as_json=json,
        dry_run=dry_run,
        clean=clean,
        quiet=quiet,
    )


@app.command("describe", epilog=_EPILOG)
def describe(
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the draft there, not to standard output.")
    ] = None,
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Draft a topology of this machine from what the system and the driver report.

    What they do not say, the bandwidth of the CPU's memory above all, is an estimate marked UNVERIFIED.
    The draft is for simulate --topology, validate run --topology and validate compare --topology.
    """
    del debug  # read from the arguments where errors are shown
    from validate.describe.command import describe_command

    describe_command(out=out, quiet=quiet)


@app.command("import", epilog=_EPILOG)
def import_(
    collection: Annotated[str, typer.Argument(metavar="COLLECTION", help="What is read: aiconfigurator.")],
    source: Annotated[str, typer.Argument(metavar="WHEEL|FOLDER", help="The package, as a wheel or unpacked.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="A folder for each device is made there.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="PART,...", help="Of these devices; all if not said.")
    ] = None,
    sample: Annotated[
        str | None, typer.Option("--sample", metavar="1/N", help="Of N shapes one, chosen by its hash.")
    ] = None,
    sample_attention: Annotated[
        str | None, typer.Option("--sample-attention", metavar="1/N", help="Of attention's; as --sample if not said.")
    ] = None,
    quiet: _Quiet = False,
    debug: _Debug = False,
) -> None:
    """Write measurements that others publish as tables for validate score.

    aiconfigurator: NVIDIA's package on PyPI, with products of matrices, attention and collectives measured on
    its data-centre GPUs.  Nothing is downloaded.  What is left out is counted on standard error, with the reason.
    docs/published.md explains it.
    """
    del debug  # read from the arguments where errors are shown
    from validate.importing.command import import_command

    import_command(
        collection,
        source,
        out=out,
        device=device,
        sample=sample,
        sample_attention=sample_attention,
        quiet=quiet,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run_app(app, "validate", arguments))


if __name__ == "__main__":
    main()
