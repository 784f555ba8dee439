"""The options of ``simulate``.  What they ask for is imported when it is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)


@app.command(epilog=_EPILOG)
def simulate(
    topology: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A machine: a YAML file, a built-in name, or - for standard input."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAMES", help="One strategy, several with commas between, or all.")
    ] = "all",
    workload: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="A network: its gradients are exchanged, or with --batch a step of it is run (resnet50, layers.yaml, "
            "torch:package.module:factory). Or a size (bytes:160MB), or a sweep over sizes (sweep:8B-8GB, with a "
            "factor sweep:8B-8GB:4).",
        ),
    ] = "resnet50",
    batch: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Simulate a step of the network on one device, with so many samples."),
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="NAME", help="Of a step: train, inference, forward, backward.")
    ] = "train",
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Of a step: torch (fp32, convolutions in TF32 where the GPU has it), fp32, tf32, fp16, bf16, "
            "amp-fp16, amp-bf16, graph-fp16, graph-bf16, master-fp16, master-bf16, fp64.",
        ),
    ] = "torch",
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of a step: momentum, adam, sgd, none; else adam for sequences, or momentum."
        ),
    ] = None,
    seq_len: Annotated[str | None, typer.Option(metavar="COUNT", help="Tokens of a sequence.")] = None,
    image: Annotated[str | None, typer.Option(metavar="COUNT", help="Pixels of an image's side.")] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A size of the network: layers=12, attention=fused; repeatable."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where a step runs: gpu0, cpu0, cpu; else the first GPU.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Threads of a CPU; else one for each core.")
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Fuse pointwise operators, as compilers do.")] = False,
    cuda_graph: Annotated[bool, typer.Option("--cuda-graph", help="Launch a step's kernels by one call.")] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Keep the inputs of repeated blocks only; run them forward again.")
    ] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Images pixel by pixel in memory, as tensor cores read them.")
    ] = False,
    fused_optimizer: Annotated[
        bool, typer.Option("--fused-optimizer", help="Update all parameters by one kernel (fused=True).")
    ] = False,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE", help="Constants of single devices, as validate calibrate writes them.")
    ] = None,
    collective: Annotated[str, typer.Option(metavar="NAME", help="all-reduce, all-gather, ...")] = "all-reduce",
    gpus: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="The first so many (4), a range (0-4) or a list (0,2,5); else all."),
    ] = None,
    root: Annotated[str, typer.Option(metavar="RANK", help="Where a broadcast starts and a reduce ends.")] = "0",
    nodes: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="So many of the machine, joined by a network."),
    ] = None,
    gpus_per_process: Annotated[
        str,
        typer.Option(metavar="COUNT", help="GPUs that one host thread launches for, as nccl-tests' -g; for nccl."),
    ] = "1",
    fabric: Annotated[
        str | None,
        typer.Option(metavar="PART", help="The link part of that network, for example infiniband-edr."),
    ] = None,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Pass repeated rounds as one event; the result is the same.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON document in place of tables.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace (JSON) that opens in Perfetto."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the comparison and the machine, or the step (.svg, .png or .pdf)."),
    ] = None,
    list_topologies: Annotated[bool, typer.Option("--list-topologies", help="List the built-in machines.")] = False,
    list_strategies: Annotated[bool, typer.Option("--list-strategies", help="List the strategies.")] = False,
    list_parts: Annotated[bool, typer.Option("--list-parts", help="List the catalogue of parts.")] = False,
    list_networks: Annotated[bool, typer.Option("--list-networks", help="List the networks of the zoo.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,  # noqa: ARG001
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Simulate how the GPUs of a machine synchronise, and what bounds it.

    simulate --topology p3.16xlarge.yaml --strategy ring
    """
    if version:
        from simulator import __version__

        typer.echo(f"simulate {__version__}")
        return
    if list_topologies or list_strategies or list_parts or list_networks:
        from simulator.cli.listing import print_lists

        print_lists(
            topologies=list_topologies,
            strategies=list_strategies,
            parts=list_parts,
            networks=list_networks,
            json_wanted=json,
        )
        return
    of_a_step = {
        "--mode": mode != "train",
        "--precision": precision != "torch",
        "--optimizer": optimizer is not None,
        "--seq-len": seq_len is not None,
        "--image": image is not None,
        "--set": bool(sizes),
        "--device": device is not None,
        "--threads": threads is not None,
        "--compile": compiled,
        "--cuda-graph": cuda_graph,
        "--recompute": recompute,
        "--channels-last": channels_last,
        "--fused-optimizer": fused_optimizer,
        "--calibration": calibration is not None,
    }
    of_an_exchange = {
        "--strategy": strategy != "all",
        "--collective": collective != "all-reduce",
        "--gpus": gpus is not None,
        "--root": root != "0",
        "--nodes": nodes is not None,
        "--fabric": fabric is not None,
        "--gpus-per-process": gpus_per_process != "1",
        "--no-fold": not fold,
    }
    from simulator.cli.options import refuse

    if batch is not None:
        from simulator.cli.step_command import StepSettings, run_step_command

        refuse(of_an_exchange, "is about an exchange of gradients; with --batch one device runs a step alone")
        run_step_command(
            StepSettings(
                topology=topology,
                workload=workload,
                batch=batch,
                sequence_length=seq_len,
                image=image,
                sizes=sizes or [],
                mode=mode,
                precision=precision,
                optimizer=optimizer,
                compiled=compiled,
                cuda_graph=cuda_graph,
                recompute=recompute,
                channels_last=channels_last,
                fused_optimizer=fused_optimizer,
                device=device,
                threads=threads,
                calibration=calibration,
                json=json,
                trace=trace,
                plot=plot,
                quiet=quiet,
            )
        )
        return
    refuse(of_a_step, "is about a step of a network; add --batch, for example --batch 32")
    from simulator.cli.command import Settings, run_command

    run_command(
        Settings(
            topology=topology,
            strategy=strategy,
            workload=workload,
            collective=collective,
            gpus=gpus,
            root=root,
            nodes=nodes,
            fabric=fabric,
            fold=fold,
            gpus_per_process=gpus_per_process,
            json=json,
            trace=trace,
            plot=plot,
            quiet=quiet,
        )
    )
