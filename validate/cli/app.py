"""The command line ``validate``: predicted times against measured ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simulator import __version__
from simulator.cli.option import with_options
from simulator.cli.written import OPTIONS
from simulator.errors import InputError
from validate.cli.command import app, command
from validate.cli.options import (
    CHECK_EPILOG,
    Calibration,
    Debug,
    Jobs,
    Json,
    Quiet,
    Text,
    Texts,
    Trust,
    argument,
    option,
)

__all__ = ["app"]

_COMMANDS = ("run", "compare", "check", "trace", "describe", "score", "calibrate", "import", "cluster", "fit", "bands")


@app.callback(invoke_without_command=True)
def _validate(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Compare predicted times with measured ones, and measure them."""
    if version:
        typer.echo(f"validate {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise InputError(f"a command is needed: {', '.join(_COMMANDS)} (--help)")


@command("score", "score:score_command")
def score(
    files: Annotated[Texts, argument("TABLE.csv", "Tables of measurements; - is standard input.")] = None,
    out: Annotated[Text, option("FILE", "Write every row with its prediction and error as CSV.")] = None,
    as_json: Json = False,
    topology: Annotated[Text, option("FILE", "The machine of every row: a path or a built-in name.")] = None,
    machines: Annotated[
        Texts, option("NAME=FILE", "Topology of one machine in the tables; repeatable.", "--machine")
    ] = None,
    strategy: Annotated[Text, option("NAME", "Strategy that predicts collectives.  [default: nccl]")] = None,
    devices: Annotated[
        Texts,
        option("[NAME=]PART", "GPU part of one device in the tables, or of every device; repeatable.", "--device"),
    ] = None,
    calibrate: Annotated[
        Text, option("ROWS", "Fit each device's constants to this many of its rows, and show the error on the rest.")
    ] = None,
    calibration: Calibration = None,
    baselines: Annotated[Text, option("FILE", "Other predictions, by row_id, to compare with.")] = None,
    trust: Trust = "A,B",
    by: Annotated[Text, option("COLUMN,...", "Group by machine, collective, decade, size, op or any column.")] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="For steps: error of the scaling efficiency, in percentage points.")
    ] = False,
    jobs: Jobs = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict every row of measured tables and show the error.

    The columns tell what a table holds.  Collectives: machine, n_gpus, collective, bytes and time_s.
    Operators: device, op, dtype, time_s and the operator's sizes.
    Training steps: machine, model, batch_per_gpu and step_time_s.
    A machine is a built-in topology by name or alias, a device a built-in part.
    docs/scoring.md lists all columns.
    """


@command("fit", "fit:fit_tables")
def fit(
    files: Annotated[Texts, argument("TABLE.csv", "Tables of measured collectives or operators.")] = None,
    hold_out: Annotated[
        Texts, option("NAME", "A machine or device to leave out of the fit and judge on; repeatable.")
    ] = None,
    leave_one_out: Annotated[
        Text,
        option("place|generation", "Judge each device or machine, or each GPU generation, by a fit to all others."),
    ] = None,
    leave_one_generation_out: Annotated[
        bool, typer.Option("--leave-one-generation-out", help="Same as --leave-one-out generation.")
    ] = False,
    terms: Annotated[
        bool,
        typer.Option("--terms", help="Turn off each term in turn, and show its worth on what was left out."),
    ] = False,
    share: Annotated[
        Text, option("SHARE", "Fit to this share of the rows, for example 0.2, to judge faster.", "--rows")
    ] = None,
    only: Annotated[
        Text,
        option(
            "FAMILY,...", "Families to fit: gemm, matrix_product, memory_bound, convolution, nccl, ...  [default: all]"
        ),
    ] = None,
    jobs: Annotated[str, option("COUNT", "Parallel processes.")] = "1",
    write: Annotated[
        bool, typer.Option("--write", help="Write the constants to the files that the models read.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit the shared constants to tables of measurements.

    Tables of collectives fit the constants of NCCL's protocols; tables of operators fit the device models.
    Prints each constant with its uncertainty, and the error on fitted and on held-out rows.
    docs/constants.md lists the constants and the rows that count.
    """


@command("bands", "bands:bands_command")
def bands(
    files: Annotated[Texts, argument("TABLE.csv", "Tables of measurements, as validate score reads them.")] = None,
    judge: Annotated[
        bool,
        typer.Option("--judge", help="Leave out each place, source, generation; show how often the other bands hold."),
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the bands to the file that answers read.")] = False,
    trust: Trust = "A,B",
    jobs: Jobs = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Derive the 80 % bands of answers from errors on measured rows.

    Prints the quantiles of log(measured / predicted) for each class of answers, and how much wider bands must be for
    unmeasured devices.  docs/decisions/bands.md explains the method.
    """


@command("calibrate", "calibrate:calibrate_command")
def calibrate(
    measurements: Annotated[
        Text,
        argument("MEASUREMENTS", "A folder from validate run, or a table of operators; - is standard input."),
    ] = None,
    device: Annotated[Text, option("PART", "The measured part; needed for a folder only if it names none.")] = None,
    topology: Annotated[Text, option("FILE", "For a folder: the measured machine.")] = None,
    out: Annotated[Text, option("FILE", "Write the YAML to FILE.")] = None,
    trust: Annotated[str, option("A,B", "Trust grades of the rows to use.")] = "A,B",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit the constants of one device to measurements of it.

    Writes a YAML file for simulate --calibration that includes the measured points.  A table calibrates operators;
    a folder also calibrates the host, from launches and steps.
    """


@command("compare", "compare:compare_command")
def compare(
    folder: Annotated[Text, argument("MEASURED/", "The folder that validate run wrote.")] = None,
    topology: Annotated[Text, option("FILE", "The measured machine: a path or a built-in name.")] = None,
    devices: Annotated[Texts, option("[NAME=]PART", "Part of a device in the tables; repeatable.", "--device")] = None,
    calibration: Calibration = None,
    calibrate: Annotated[
        Text,
        option(
            "ROWS|TIME", "Calibrate on this many operators (50) or as many as take this long (120s); judge on the rest."
        ),
    ] = None,
    calibrated_by: Annotated[Text, option("SHORT/", "Calibrate on this folder; judge on the cases it lacks.")] = None,
    again: Annotated[
        Text, option("AGAIN/", "Show the drift against another measurement of this machine.", "--with")
    ] = None,
    report: Annotated[Text, option("FILE.html", "Write everything as one HTML page with plots.")] = None,
    trust: Trust = "A,B",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare a folder of measurements with predictions.

    Shows the error of each class with its uncertainty and the spread of the measurement, outliers and likely causes,
    the rows with the largest errors, and what calibration would gain.  docs/compare.md explains the output.
    """


@command("run", "run:run_command")
@with_options(
    OPTIONS,
    *("topology", "out", "only", "device", "budget", "machine", "within"),
    # -- for a step of your own, as in simulate
    *("workload", "batch", "global_batch", "micro_batches", "micro_batch", "gpus", "nodes", "parallel", "overlap"),
    *("reduce_fp32", "mode", "precision", "optimizer", "seq_len", "image", "sizes", "compiled", "cuda_graph"),
    *("recompute", "recompute_attention", "recompute_operators", "channels_last", "fused_optimizer", "threads"),
    *("parts", "prepare"),
    # -- for an exchange, as in simulate
    *("strategy", "collective", "root", "servers", "quiet", "debug"),
    topology="This machine: a path or a built-in name.",
    workload="Measure only this step: a built-in network, layers.yaml, torch:package.module:factory, ...",
    gpus="Use the first COUNT GPUs.  [default: all of the topology]",
    nodes="Number of nodes, for --prepare.",
    parallel="dp: replicas (DDP); fsdp: shards (FSDP2), fsdp=8 in groups of 8.",
    precision="torch, fp32, tf32, fp16, bf16, fp64, amp-fp16, amp-bf16.",
    optimizer="momentum, adam, adam-loop, sgd, none.",
    compiled="Compile with torch.compile.",
    recompute="Checkpoint repeated blocks.",
    recompute_attention="Checkpoint attention.",
    recompute_operators="Checkpoint all but attention and every second product.",
    strategy="With bytes:160MB or a network: measure these strategies, as sends and adds of each rank.",
    collective="all-reduce, all-gather, reduce-scatter, broadcast, reduce.",
)
def run(
    out: Annotated[str, option("DIR", "Folder for the tables; existing rows are kept.")] = "measured",
    only: Annotated[
        Text, option("GROUP,...", "ops, launch, memory, copies, overlap, steps, storage, collectives.")
    ] = None,
    device: Annotated[Text, option("NAME", "cuda:0 or cpu.  [default: the first GPU]")] = None,
    budget: Annotated[Text, option("TIME", "Start no case after this time: 120s, 5min.")] = None,
    machine: Annotated[Text, option("NAME", "Name of the machine in the tables.")] = None,
    within: Annotated[Text, option("PART", "Repeat until the median is this certain.  [default: 1%]")] = None,
    parts: Annotated[bool, typer.Option("--parts", help="Also measure the step's operators one by one.")] = False,
    prepare: Annotated[bool, typer.Option("--prepare", help="Write the plan into --out, and measure nothing.")] = False,
    **given: Any,
) -> None:
    """Measure this machine: operators, steps, copies, collectives.

    Also measures memory, launches and storage.  Needs torch.  Each row is saved as soon as it is measured, and the same
    command resumes an interrupted run.  run.json describes the machine and lists what was not measured, with reasons.
    Where only torch is installed, python -m validate.measure does the same, without --topology.  A topology that
    contradicts the machine is refused before anything is measured.

    validate run --topology mine.yaml --workload my_net.yaml --batch 64 measures the step that simulate predicts with
    the same options; --workload bytes:160MB --strategy ring,gpu0,nccl measures exchanges.
    """


@command("cluster", "cluster:cluster_command")
def cluster(
    nodes: Annotated[str, option("N,...", "Hosts: 4, 2,4 or 2-6.")] = "4",
    rates: Annotated[
        Texts,
        option("RATE,...", "Rate of each link and direction, for example 1Gbit/s.  [default: 100Mbit/s]", "--rate"),
    ] = None,
    delay: Annotated[Text, option("TIME", "Added one-way delay between hosts: 1ms.")] = None,
    sizes: Annotated[str, option("SIZE,...", "Bytes that each host exchanges.")] = "1MB,4MB,16MB",
    strategies: Annotated[
        str,
        option("NAME,...", "Any schedule of simulate --strategy, or torch's own gloo and broadcast."),
    ] = "ring,halving-doubling,sharded,parameter-server,gloo,broadcast",
    repeat: Annotated[str, option("COUNT", "Most repetitions of a case.")] = "15",
    budget: Annotated[str, option("TIME", "Approximate time to measure.")] = "10 min",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Predict with the measured rate of a plain TCP stream.")
    ] = False,
    out: Annotated[Text, option("DIR", "Write collectives.csv, cluster.json and one topology per rate.")] = None,
    topology: Annotated[Text, option("FILE", "Write the topology, for simulate --topology.")] = None,
    as_json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands without running them.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove leftovers of a crashed run, and exit.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure and predict a real network of hosts on this machine.

    Hosts are Linux network namespaces connected by veth pairs and a bridge, with rate-limited links (tc tbf).
    Strategies run on them send by send over torch's gloo, as do gloo's own collectives; the simulator predicts the same
    from the link rate alone. Everything is removed at the end.
    Needs ip, tc, permission to create namespaces, and torch. docs/cluster.md explains the setup.
    """


@command("describe", "describe:describe_command")
def describe(
    files: Annotated[
        Texts, option("FILE", "A dump of another machine; repeat it for several dumps of that machine.", "--from")
    ] = None,
    gpu: Annotated[Text, option("NAME", "With --from: the GPU model, if no dump names it: h100.")] = None,
    nic: Annotated[Text, option("PART", "With --from: the network adapters: connectx-7-ndr.")] = None,
    out: Annotated[Text, option("FILE", "Write the draft to FILE instead of standard output.")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draft a topology of this machine, or of another from dumps.

    Reads what the system and the driver report.  What they do not report, CPU memory bandwidth above all, is an
    estimate marked UNVERIFIED.  simulate, validate run and validate compare take the draft with --topology.

    --from takes the output of nvidia-smi topo -m and -L, NCCL's topology XML, lspci -tv, hwloc's XML and NCCL's log;
    docs/dumps.md explains each.

    validate describe --from topo.txt --gpu h100 --out mine.yaml
    """


@command("check", "check:check_command", epilog=CHECK_EPILOG)
def check(
    files: Annotated[Texts, argument("LOG", "Output of nccl-tests, printed or written with -J.")] = None,
    topology: Annotated[Text, option("FILE", "The machine it ran on: a path or a built-in name.")] = None,
    nodes: Annotated[Text, option("COUNT", "Number of nodes.  [default: as in the log]")] = None,
    fabric: Annotated[Text, option("PART", "Network between nodes, instead of the adapters' own.")] = None,
    gpus: Annotated[Text, option("COUNT|LIST", "GPUs that ran, if the log does not list them: 8, 0-3 or 0,2.")] = None,
    collective: Annotated[Text, option("NAME", "The collective, if the log names none or several.")] = None,
    nccl: Annotated[Text, option("VERSION", "NCCL version, if the log names none: 2.18.")] = None,
    plot: Annotated[Text, option("FILE", "Plot measured and expected: .svg, .png or .pdf.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say whether an nccl-tests log is normal, and if not, why.

    Compares measured with expected bus bandwidth at each size. If the log is slower than healthy logs are, simulates
    the machine with faulty links, adapters and settings, and names the faults that fit.  docs/check.md explains it.

    validate check --topology dgx-h100 all_reduce.log --plot check.svg
    """


@command("trace", "trace:trace_command", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def trace(
    context: typer.Context,
    file: Annotated[str, argument("TRACE.json[.gz]", "Trace of PyTorch's profiler (export_chrome_trace).")],
    steps: Annotated[Text, option("COUNT", "Number of steps, if profiler.step() marked none.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare a PyTorch profiler trace with the predicted step.

    All other options are simulate's and describe the step. Shows kernels by class, exposed communication,
    device idle time, and the ten largest differences. docs/trace.md explains it.

    validate trace trace.json.gz --topology p3.2xlarge --workload resnet50 --batch 64
    """


@command("import", "import_:import_command")
def import_(
    collection: Annotated[str, argument("COLLECTION", "The collection: aiconfigurator.")],
    source: Annotated[str, argument("WHEEL|FOLDER", "The package, as a wheel or unpacked.")],
    out: Annotated[Text, option("DIR", "Create one folder per device in DIR.")] = None,
    device: Annotated[Text, option("PART,...", "Only these devices.  [default: all]")] = None,
    sample: Annotated[Text, option("1/N", "Take one of N shapes, chosen by hash.")] = None,
    sample_attention: Annotated[Text, option("1/N", "The same for attention.  [default: --sample]")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Turn published measurements into tables for validate score.

    aiconfigurator: NVIDIA's package on PyPI, with GEMMs, attention and collectives measured on its data-centre GPUs.
    Nothing is downloaded.  Skipped rows are counted on standard error, with the reason.  docs/published.md explains it.
    """
