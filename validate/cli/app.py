"""The command line ``validate``: simulated times beside measured ones."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.errors import InputError
from validate.cli.options import (
    CHECK_EPILOG,
    EPILOG,
    Calibration,
    Debug,
    Json,
    Quiet,
    Text,
    Texts,
    Trust,
    argument,
    option,
)

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
_COMMANDS = ("run", "compare", "check", "trace", "describe", "score", "calibrate", "import", "cluster", "fit")


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
        raise InputError(f"a command is needed: {', '.join(_COMMANDS)} (--help)")


@app.command("score", epilog=EPILOG)
def score(
    tables: Annotated[Texts, argument("TABLE.csv", "Tables of measurements; - is standard input.")] = None,
    out: Annotated[Text, option("FILE", "Write every row with its prediction and error as CSV.")] = None,
    json: Json = False,
    topology: Annotated[Text, option("FILE", "The machine of all rows: a path or a built-in name.")] = None,
    machine: Annotated[Texts, option("NAME=FILE", "The topology of one machine of the tables; repeatable.")] = None,
    strategy: Annotated[Text, option("NAME", "What predicts collectives; nccl if not said.")] = None,
    device: Annotated[
        Texts, option("[NAME=]PART", "The GPU part of one device of tables of operators, or of all; repeatable.")
    ] = None,
    calibrate: Annotated[
        Text, option("ROWS", "Fit each device's constants to so many of its rows, and show the error on the others.")
    ] = None,
    calibration: Calibration = None,
    baselines: Annotated[Text, option("FILE", "Predictions of others, by row_id, to show beside.")] = None,
    trust: Trust = "A,B",
    by: Annotated[Text, option("COLUMN,...", "Group by machine, collective, decade, size, op or any column.")] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Of steps: how far the efficiency of more GPUs is off, in points.")
    ] = False,
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
        scaling=scaling,
        quiet=quiet,
    )


@app.command("fit", epilog=EPILOG)
def fit(
    tables: Annotated[Texts, argument("TABLE.csv", "Tables of measured collectives, or of operators.")] = None,
    hold_out: Annotated[
        Texts, option("NAME", "A machine (or device) that is judged and not fitted to; repeatable.")
    ] = None,
    leave_one_out: Annotated[
        Text,
        option("place|generation", "Judge each device or machine, or each generation of GPUs, by a fit to all others."),
    ] = None,
    leave_one_generation_out: Annotated[
        bool, typer.Option("--leave-one-generation-out", help="The same as --leave-one-out generation.")
    ] = False,
    terms: Annotated[
        bool,
        typer.Option("--terms", help="Switch each term off in turn; say what it is worth on what is left out."),
    ] = False,
    rows: Annotated[
        Text, option("SHARE", "Fit to so many of the rows that would count, such as 0.2: to judge faster.")
    ] = None,
    only: Annotated[
        Text,
        option("FAMILY,...", "Such as gemm, matrix_product, memory_bound, convolution, nccl; else all."),
    ] = None,
    jobs: Annotated[str, option("COUNT", "Processes that fit at once.")] = "1",
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
        leave_one_out="generation" if leave_one_generation_out and leave_one_out is None else leave_one_out,
        terms=terms,
        share=rows,
        only=only,
        jobs=jobs,
        write=write,
        as_json=json,
        quiet=quiet,
    )


@app.command("bands", epilog=EPILOG)
def bands(
    tables: Annotated[Texts, argument("TABLE.csv", "Tables of measurements, as validate score reads them.")] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Leave each device and machine out; show what bands of the others hold.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the classes into the file that answers read.")] = False,
    trust: Trust = "A,B",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make the bands of answers from what measured rows are off.

    Prints by class of answers the quantiles of log(measured / predicted), and how much wider bands must be for devices
    that were not measured.  docs/decisions/bands.md explains.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.bands import bands_command

    bands_command(tables or [], judge=judge, write=write, trust=trust, as_json=json, quiet=quiet)


@app.command("calibrate", epilog=EPILOG)
def calibrate(
    table: Annotated[
        Text,
        argument("MEASUREMENTS", "The folder of validate run, or a table of operators; - is standard input."),
    ] = None,
    device: Annotated[Text, option("PART", "What was measured; of a folder where it does not say itself.")] = None,
    topology: Annotated[Text, option("FILE", "Of a folder: the machine that was measured.")] = None,
    out: Annotated[Text, option("FILE", "Write the YAML there.")] = None,
    trust: Annotated[str, option("A,B", "Grades of the rows that are used.")] = "A,B",
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
    folder: Annotated[Text, argument("MEASURED/", "The folder that validate run wrote.")] = None,
    topology: Annotated[Text, option("FILE", "The machine that was measured: a path or a built-in name.")] = None,
    device: Annotated[Texts, option("[NAME=]PART", "The part of a device of the tables; repeatable.")] = None,
    calibration: Calibration = None,
    calibrate: Annotated[
        Text,
        option(
            "ROWS|TIME", "Fit to so many operators (50), or to what is measured in a time (120s); judge on the others."
        ),
    ] = None,
    calibrated_by: Annotated[Text, option("SHORT/", "Fit to this folder; judge on what it did not ask.")] = None,
    again: Annotated[
        Text, option("AGAIN/", "Show the drift to another measurement of the same machine.", "--with")
    ] = None,
    report: Annotated[Text, option("FILE.html", "Write all of it as one page, with plots.")] = None,
    trust: Trust = "A,B",
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


@app.command("run", epilog=EPILOG)
def run(
    topology: Annotated[Text, option("FILE", "What this machine is: a path or a built-in name.")] = None,
    out: Annotated[str, option("DIR", "The folder of the tables; what it holds already is kept.")] = "measured",
    only: Annotated[
        Text, option("GROUP,...", "ops, launch, memory, copies, overlap, steps, storage, collectives.")
    ] = None,
    device: Annotated[Text, option("NAME", "cuda:0 or cpu; the first GPU if not said.")] = None,
    budget: Annotated[Text, option("TIME", "Begin no case after this time: 120s, 5min.")] = None,
    machine: Annotated[Text, option("NAME", "The machine's name in the tables.")] = None,
    within: Annotated[Text, option("PART", "Repeat until the median is known to this: 1% if not said.")] = None,
    # -- of a step of one's own, as simulate has them
    workload: Annotated[
        Text,
        option("WHAT", "Measure this step alone: a network of the zoo, layers.yaml, torch:package.module:factory, ..."),
    ] = None,
    batch: Annotated[Text, option("COUNT", "Samples a GPU.")] = None,
    global_batch: Annotated[Text, option("COUNT", "Samples on all GPUs together.")] = None,
    micro_batches: Annotated[str, option("COUNT", "Gradients of so many batches are summed before the update.")] = "1",
    micro_batch: Annotated[Text, option("SAMPLES", "With --global-batch, which says how many there are.")] = None,
    gpus: Annotated[Text, option("WHICH", "The first so many; all of the topology if not said.")] = None,
    nodes: Annotated[Text, option("COUNT", "So many of the topology's machine, for --prepare.")] = None,
    parallel: Annotated[Texts, option("HOW", "dp: replicas (DDP); fsdp: shards (FSDP2), fsdp=8 of so many.")] = None,
    overlap: Annotated[
        str, option("HOW", "bucket:25MiB or another size; none: gradients after the backward pass.")
    ] = "bucket:25MiB",
    reduce_fp32: Annotated[bool, typer.Option("--reduce-fp32", help="Shards' gradients are summed in fp32.")] = False,
    mode: Annotated[str, option("NAME", "train, inference, forward, backward.")] = "train",
    precision: Annotated[Text, option("NAME", "torch, fp32, tf32, fp16, bf16, fp64, amp-fp16, amp-bf16.")] = None,
    optimizer: Annotated[Text, option("NAME", "momentum, adam, sgd, none.")] = None,
    seq_len: Annotated[Text, option("COUNT", "Tokens of a sequence.")] = None,
    image: Annotated[Text, option("COUNT", "Pixels of an image's side.")] = None,
    sizes: Annotated[Texts, option("NAME=VALUE", "A size of the network: layers=12; repeatable.", "--set")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="torch.compile.")] = False,
    cuda_graph: Annotated[bool, typer.Option("--cuda-graph", help="Capture the step, and launch it at once.")] = False,
    recompute: Annotated[bool, typer.Option("--recompute", help="Checkpoint repeated blocks.")] = False,
    recompute_attention: Annotated[bool, typer.Option("--recompute-attention", help="Checkpoint attention.")] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Images pixel by pixel in memory.")] = False,
    fused_optimizer: Annotated[bool, typer.Option("--fused-optimizer", help="fused=True.")] = False,
    threads: Annotated[Text, option("COUNT", "Threads of a CPU.")] = None,
    parts: Annotated[bool, typer.Option("--parts", help="Measure the step's operators one by one.")] = False,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Write into --out what is to be measured, and measure nothing.")
    ] = False,
    # -- of an exchange, as simulate has them
    strategy: Annotated[
        Text, option("NAME,...", "With bytes:160MB or a network: measure these strategies, each rank's sends and adds.")
    ] = None,
    collective: Annotated[
        str, option("NAME", "all-reduce, all-gather, reduce-scatter, broadcast, reduce.")
    ] = "all-reduce",
    root: Annotated[str, option("RANK", "Where a broadcast starts and a reduce ends.")] = "0",
    servers: Annotated[Text, option("WHERE", "Where parameter servers stand: own, workers or names of CPUs.")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure this machine: operators, steps, copies, memory, launches, collectives.

    Needs torch.  Every row is on the disk when it is measured; the same command goes on where an
    interrupted one ended.  run.json holds what the machine reports of itself, and what was not
    measured and why.  Where torch is all there is, python -m validate.measure does the same,
    without --topology.  A topology that the machine contradicts is refused before anything is measured.

    validate run --topology mine.yaml --workload my_net.yaml --batch 64 measures the step that simulate predicts
    in the same words; --workload bytes:160MB --strategy ring,gpu0,nccl the exchanges.
    """
    given = locals()
    del debug  # read from the arguments where errors are shown
    from dataclasses import fields

    from simulator.cli.written import Written, spelt

    written = None
    own = {field.name: given[field.name] for field in fields(Written) if field.name in given}
    own |= {"device": None, "sizes": tuple(sizes or ()), "parallel": tuple(parallel or ()), "quiet": quiet}
    if workload is not None:
        written = Written(**own)
    else:
        for field in fields(Written):
            if field.name not in ("topology", "device", "quiet") and own.get(field.name) not in (None, field.default):
                raise InputError(f"{spelt(field.name)}: is about a step of your own; name its network with --workload")
    from validate.cli.run import run_command

    status = run_command(
        out=out,
        topology=topology,
        only=only,
        device=device,
        budget=budget,
        machine=machine,
        within=within,
        quiet=quiet,
        written=written,
        parts=parts,
        prepare=prepare,
    )
    if status:
        raise typer.Exit(status)


@app.command("cluster", epilog=EPILOG)
def cluster(
    nodes: Annotated[str, option("N,...", "Hosts: 4, 2,4 or 2-6.")] = "4",
    rate: Annotated[Texts, option("RATE,...", "Of each link, one way: 100Mbit/s (if not said), 1Gbit/s.")] = None,
    delay: Annotated[Text, option("TIME", "From host to host, one way, on top: 1ms.")] = None,
    sizes: Annotated[str, option("SIZE,...", "Bytes that each host exchanges.")] = "1MB,4MB,16MB",
    strategies: Annotated[
        str,
        option("NAME,...", "Any schedule of simulate --strategy, send by send; gloo and broadcast are torch's own."),
    ] = "ring,halving-doubling,sharded,parameter-server,gloo,broadcast",
    repeat: Annotated[str, option("COUNT", "Times of each case, at most.")] = "15",
    budget: Annotated[str, option("TIME", "Time to measure, about.")] = "10 min",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Predict with the rate that a plain TCP stream reached.")
    ] = False,
    out: Annotated[Text, option("DIR", "Write collectives.csv, cluster.json and a topology for each rate.")] = None,
    topology: Annotated[Text, option("FILE", "Write the topology, for simulate --topology.")] = None,
    json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands, and run none.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what a crashed run has left, and do no more.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure a real network of hosts on this machine, and predict the same.

    Hosts are network namespaces of Linux, joined by veth pairs and a bridge, each link with a rate
    (tc tbf). Strategies run on them send by send over torch's gloo, and gloo's own collectives; the
    simulator predicts the same from the rate alone. All of it is removed at the end.
    Needs ip and tc, the right to make namespaces, and torch. docs/cluster.md explains it.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.cluster import cluster_command

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


@app.command("describe", epilog=EPILOG)
def describe(
    files: Annotated[
        Texts, option("FILE", "A dump of the machine, in place of this one; repeatable for one machine.", "--from")
    ] = None,
    gpu: Annotated[Text, option("NAME", "With --from: which GPUs these are, where no dump says so: h100.")] = None,
    nic: Annotated[Text, option("PART", "With --from: which adapters these are: connectx-7-ndr.")] = None,
    out: Annotated[Text, option("FILE", "Write the draft there, not to standard output.")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draft a topology of this machine from what the system and the driver report, or of another from dumps.

    What they do not say, the bandwidth of the CPU's memory above all, is an estimate marked UNVERIFIED.
    The draft is for simulate --topology, validate run --topology and validate compare --topology.

    --from takes nvidia-smi topo -m and -L, NCCL's topology XML, lspci -tv, hwloc's XML and NCCL's log; docs/dumps.md
    explains it.

    validate describe --from topo.txt --gpu h100 --out mine.yaml
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.describe import describe_command

    describe_command(files=files or [], gpu=gpu, nic=nic, out=out, quiet=quiet)


@app.command("check", epilog=CHECK_EPILOG)
def check(
    files: Annotated[Texts, argument("LOG", "What nccl-tests printed, or wrote with -J.")] = None,
    topology: Annotated[Text, option("FILE", "The machine that ran it: a path or a built-in name.")] = None,
    nodes: Annotated[Text, option("COUNT", "So many of it; as the log lists if not said.")] = None,
    fabric: Annotated[Text, option("PART", "The network between them, in place of the adapters' own.")] = None,
    gpus: Annotated[Text, option("COUNT", "Ranks, where the log has lost its header.")] = None,
    collective: Annotated[Text, option("NAME", "What was exchanged, where the log does not say.")] = None,
    nccl: Annotated[Text, option("VERSION", "NCCL's, where the log names none: 2.18.")] = None,
    plot: Annotated[Text, option("FILE", "Draw measured beside expected, .svg, .png or .pdf.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say whether a log of nccl-tests is normal for the machine, and what would explain it where it is not.

    Sets measured beside expected bus bandwidth by size. Where a log is slower than logs that nobody
    complained about, simulates the machine with links, adapters and settings amiss, and names what fits.
    docs/check.md explains it.

    validate check --topology dgx-h100 all_reduce.log --plot check.svg
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.check import check_command

    status = check_command(
        files or [],
        topology=topology,
        nodes=nodes,
        fabric=fabric,
        gpus=gpus,
        collective=collective,
        nccl=nccl,
        plot=plot,
        as_json=json,
        quiet=quiet,
    )
    if status:
        raise typer.Exit(status)


@app.command("trace", epilog=EPILOG, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def trace(
    context: typer.Context,
    file: Annotated[str, argument("TRACE.json[.gz]", "What PyTorch's profiler wrote (export_chrome_trace).")],
    steps: Annotated[Text, option("COUNT", "Steps in it, where profiler.step() marked none.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Set a trace of PyTorch's profiler beside the step that simulate predicts.

    All other options are simulate's, and say what the step is. Shows kernels by class, exposed communication,
    what the device idles, and the ten largest differences. docs/trace.md explains it.

    validate trace trace.json.gz --topology p3.2xlarge --workload resnet50 --batch 64
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.trace import trace_command

    status = trace_command(file, context.args, steps=steps, as_json=json, quiet=quiet)
    if status:
        raise typer.Exit(status)


@app.command("import", epilog=EPILOG)
def import_(
    collection: Annotated[str, argument("COLLECTION", "What is read: aiconfigurator.")],
    source: Annotated[str, argument("WHEEL|FOLDER", "The package, as a wheel or unpacked.")],
    out: Annotated[Text, option("DIR", "A folder for each device is made there.")] = None,
    device: Annotated[Text, option("PART,...", "Of these devices; all if not said.")] = None,
    sample: Annotated[Text, option("1/N", "Of N shapes one, chosen by its hash.")] = None,
    sample_attention: Annotated[Text, option("1/N", "Of attention's; as --sample if not said.")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write measurements that others publish as tables for validate score.

    aiconfigurator: NVIDIA's package on PyPI, with products of matrices, attention and collectives measured on
    its data-centre GPUs.  Nothing is downloaded.  What is left out is counted on standard error, with the reason.
    docs/published.md explains it.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.import_ import import_command

    import_command(
        collection,
        source,
        out=out,
        device=device,
        sample=sample,
        sample_attention=sample_attention,
        quiet=quiet,
    )
