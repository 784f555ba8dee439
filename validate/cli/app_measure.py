"""The commands of ``validate`` that make tables of measurements, or describe what is measured."""

from __future__ import annotations

from typing import Annotated

import typer

from validate.cli.options import Debug, Json, Quiet

__all__ = ["cluster", "describe", "import_", "run"]


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
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure this machine: operators, steps, copies, memory, launches, collectives.

    Needs torch.  Every row is on the disk when it is measured; the same command goes on where an
    interrupted one ended.  run.json holds what the machine reports of itself, and what was not
    measured and why.  Where torch is all there is, python -m validate.measure does the same,
    without --topology.  A topology that the machine contradicts is refused before anything is measured.
    """
    del debug  # read from the arguments where errors are shown
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
    )
    if status:
        raise typer.Exit(status)


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
    json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands, and run none.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what a crashed run has left, and do no more.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure a real network of hosts on this machine, and predict the same.

    Hosts are network namespaces of Linux, joined by veth pairs and a bridge, each link with a rate
    (tc tbf). torch.distributed with gloo, and push and pull over TCP, run on them; the
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


def describe(
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the draft there, not to standard output.")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draft a topology of this machine from what the system and the driver report.

    What they do not say, the bandwidth of the CPU's memory above all, is an estimate marked UNVERIFIED.
    The draft is for simulate --topology, validate run --topology and validate compare --topology.
    """
    del debug  # read from the arguments where errors are shown
    from validate.cli.describe import describe_command

    describe_command(out=out, quiet=quiet)


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
