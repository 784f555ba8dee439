"""The options of ``simulate``.  Their code is imported only when used."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli import complete
from simulator.cli.help import GroupedCommand
from simulator.cli.issuing_options import (
    Accumulate,
    CudaGraph,
    CudaGraphBlocks,
    Framework,
    LaunchBlocking,
    Recompute,
    RecomputeAttention,
    RecomputeBlocks,
    RecomputeOperators,
    RecomputeParts,
)

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)


@app.command(epilog=_EPILOG, cls=GroupedCommand)
def simulate(
    topology: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.machines,
            metavar="FILES",
            help="A machine: a YAML file, a built-in name, a part (h100-sxm5-80gb), or - for standard "
            "input. Machines separated by commas are compared.",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.networks,
            show_default="resnet50",
            metavar="WHAT",
            help="A network: resnet50, layers.yaml, a Hugging Face config.json or its folder, or "
            "torch:package.module:factory, which runs your code (the current folder is searched first). "
            "Its gradients are exchanged; with --batch, a step of it runs. Or a size (bytes:160MB) or a sweep of sizes "
            "(sweep:8B-8GB; sweep:8B-8GB:4 multiplies by 4). Or a single operation: "
            "op:linear,rows=512,inputs=1024,outputs=4096, copy:h2d,160MB, "
            "access:stream,64MiB, launch:stream,op=elementwise,function=relu,elements=64, "
            "disk:read_random,4KiB, message:4KiB, core:mutex; over a sweep of sizes, "
            "access:chase,sweep:4KiB-1GiB. Or a program, the operations that Python issues: loop.yaml.",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.strategies,
            metavar="NAMES",
            help="How GPUs exchange: one strategy, several separated by commas, or all. Default: all; nccl in a step.",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="The first four (4), the fastest four (best:4), a range (0-4) or a list (0,2,5). Default: all.",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Connect this many machines by a network."),
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.fabrics,
            metavar="PART",
            help="Link part of that network, for example infiniband-edr, or an Ethernet rate "
            "(25Gbit/s). Default: the rate of the adapters.",
        ),
    ] = None,
    nccl: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="NCCL version to model, for example 2.18. Default: the latest."),
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where parameter servers run: own (machines without GPUs), workers, or CPUs "
            "(node4.cpu0,...). Default: own, if there are such machines.",
        ),
    ] = None,
    slow_link: Annotated[
        str | None,
        typer.Option(
            metavar="A-B:0.5x,...",
            help="Links between two devices run at this fraction of their rate; 0x: they have failed; "
            "0x@10ms..50ms: during this time, whatever holds otherwise; node*.nic[4-7]-network: of all nodes.",
        ),
    ] = None,
    neighbour: Annotated[
        str | None,
        typer.Option(
            metavar="A-B:5GB/s,...",
            help="Another job moves data at this rate from one device to another; gpu[0-3]-gpu[4-7]: four jobs.",
        ),
    ] = None,
    collective: Annotated[
        str,
        typer.Option(
            autocompletion=complete.collectives,
            metavar="NAME",
            help="all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all or send-recv.",
        ),
    ] = "all-reduce",
    root: Annotated[str, typer.Option(metavar="RANK", help="Root of a broadcast or reduce.")] = "0",
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="A>B,...", help="Sender and receiver of each send-recv. Default: each rank sends to the next."
        ),
    ] = None,
    group_size: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Split the ranks into groups of this size that exchange at the same time."),
    ] = None,
    gpus_per_process: Annotated[
        str,
        typer.Option(metavar="COUNT", help="GPUs per host thread, like nccl-tests' -g; for nccl."),
    ] = "1",
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="NCCL's algorithm (NCCL_ALGO): ring, tree, nvls, nvls_tree, pat. Default: what NCCL chooses.",
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Element type: fp64, fp32, tf32, fp16, bf16, int8 to int64, uint8 to uint64, fp8. Switches cannot "
            "reduce 8-bit types.",
        ),
    ] = "fp32",
    redop: Annotated[
        str,
        typer.Option(metavar="NAME", help="Reduction: sum, avg, prod, min, max; for nccl."),
    ] = "sum",
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Simulate repeated rounds as one event; the result is the same.")
    ] = True,
    batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Simulate a step with this many samples per GPU.")
    ] = None,
    global_batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Simulate a step with this many samples on all GPUs together.")
    ] = None,
    epoch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Also show the time of an epoch of this many samples.")
    ] = None,
    input: Annotated[  # noqa: A002  the option's name
        str | None,
        typer.Option(
            metavar="SET,KEY=VALUE,...",
            help="Source of the samples: a data set (imagenet), a YAML file, or sample=4KB; then "
            "disk=ebs0, workers=8, prefetch=2, block=1MB, cache=memory, epochs=3, pinned=no, "
            "batch_time=2ms, evaluate=10000, ...",
        ),
    ] = None,
    programs: Annotated[
        str,
        typer.Option(metavar="COUNT", help="Processes that share one GPU, which runs one of them at a time."),
    ] = "1",
    micro_batches: Annotated[
        str, typer.Option(metavar="COUNT", help="Batches whose gradients are summed before the update.")
    ] = "1",
    micro_batch: Annotated[
        str | None,
        typer.Option(
            metavar="SAMPLES",
            help="Samples per micro-batch and replica; with --global-batch, this sets the number of micro-batches.",
        ),
    ] = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYOUT",
            help="dp: a replica on each GPU (DDP). fsdp: a shard of the parameters on each GPU (FSDP, "
            "ZeRO-3). dataparallel: nn.DataParallel. loop: one Python loop drives all GPUs and sums "
            "gradients one by one. Or degrees: tp=8,pp=4,dp=2, with sp, cp, ep, vp, zero, schedule, "
            "order. Repeat the option to compare layouts.",
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="For dp: exchange gradients in buckets during the backward pass (bucket:25MiB), or after it (none).",
        ),
    ] = "bucket:25MiB",
    staleness: Annotated[
        str,
        typer.Option(
            metavar="STEPS",
            help="For parameter servers: steps that a node may be ahead of the slowest; async: no limit.",
        ),
    ] = "0",
    straggler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:1.5x,...",
            help="A GPU or node that computes this many times slower; also gpu[0-3], node*.gpu3.",
        ),
    ] = None,
    divide: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="For dp on different devices: divide the batch evenly (even) or so that all finish together (best); "
            "best,cpu0 includes a CPU.",
        ),
    ] = "even",
    lose: Annotated[
        str | None,
        typer.Option(metavar="CPU@TIME", help="For parameter servers: this server fails at this time in a step."),
    ] = None,
    mtbf: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Mean time between failures; a failed run resumes from its last checkpoint."),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help="Steps between checkpoints, with --mtbf. Default: the best interval."),
    ] = None,
    checkpoint_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time to write a checkpoint. Default: the time of the first disk."),
    ] = None,
    restart_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time from a failure to the next step. Default: none.")
    ] = None,
    reduce_fp32: Annotated[bool, typer.Option("--reduce-fp32", help="For fsdp: sum 16-bit gradients in fp32.")] = False,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch/--no-prefetch",
            help="For fsdp, in the backward pass: all-gather the next unit while one computes, or after it. For zero=1 "
            "and 2: all-gather parameters while the next step computes, or after the update.",
        ),
    ] = True,
    contention: Annotated[
        bool,
        typer.Option(
            "--contention/--no-contention",
            help="Include what slows several GPUs: kernels and exchanges that overlap, bucket copies, stragglers.",
        ),
    ] = True,
    mode: Annotated[
        str, typer.Option(autocompletion=complete.modes, metavar="NAME", help="train, inference, forward, backward.")
    ] = "train",
    precision: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.precisions,
            metavar="NAME",
            help="fp32, tf32, fp16, bf16, amp-fp16, amp-bf16, graph-fp16, graph-bf16, master-fp16, "
            "master-bf16, master-fp8, nvfp4, fp64, or torch (fp32, convolutions in TF32 if the GPU has it); for "
            "inference also int8 and int4. Default: amp-bf16 with fused attention for language models like GPT and "
            "Llama if the device supports it, else torch.",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.optimizers,
            metavar="NAME",
            help="momentum, adam, lamb, adam-loop, bert-adam, sgd, none. Default: adam for sequences, otherwise "
            "momentum.",
        ),
    ] = None,
    seq_len: Annotated[str | None, typer.Option(metavar="COUNT", help="Tokens per sequence.")] = None,
    image: Annotated[str | None, typer.Option(metavar="COUNT", help="Image width and height in pixels.")] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A size of the network, for example layers=12 or attention=fused; repeatable.",
        ),
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Fuse pointwise operators, as compilers do.")] = False,
    cuda_graph: CudaGraph = False,
    cuda_graph_blocks: CudaGraphBlocks = False,
    launch_blocking: LaunchBlocking = False,
    accumulate: Accumulate = None,
    recompute: Recompute = False,
    recompute_attention: RecomputeAttention = False,
    recompute_operators: RecomputeOperators = False,
    recompute_parts: RecomputeParts = None,
    recompute_blocks: RecomputeBlocks = None,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Channels-last image layout, as tensor cores read it.")
    ] = False,
    fused_optimizer: Annotated[
        bool, typer.Option("--fused-optimizer", help="Update all parameters in one kernel (fused=True).")
    ] = False,
    framework: Framework = "pytorch",
    cpu_library: Annotated[
        str, typer.Option(metavar="NAME", help="CPU kernels: onednn, or blas as frameworks used it in 2016.")
    ] = "onednn",
    libraries: Annotated[
        str | None,
        typer.Option(
            metavar="MONTH",
            help="Month of the GPU's kernel libraries (cuBLAS, cuDNN), for example 2020-10: young ones are slower. "
            "Default: mature ones.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use only this device: gpu0, cpu0, or cpu. Default for a single operation: the first GPU.",
        ),
    ] = None,
    threads: Annotated[str | None, typer.Option(metavar="COUNT", help="CPU threads. Default: one per core.")] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE", help="Calibrated constants of devices, from validate calibrate.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            metavar="LINE",
            help="Read the options from a launch line of Megatron-LM, torchrun or DeepSpeed, or from "
            "@script.sh. It is not run.",
        ),
    ] = None,
    show_options: Annotated[bool, typer.Option("--show-options", help="Print --launch as a simulate command.")] = False,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if", help="For a step: the gain from faster links, devices and hosts, and from other settings."
        ),
    ] = False,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Let a program file run code (run: torch:module:factory).")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace (JSON), which opens in Perfetto."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the comparison and the machine, or the step (.svg, .png or .pdf)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on standard error.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            help='Print the script that completes names in bash, zsh or fish: eval "$(simulate --completion bash)".',
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Predict the time of a training step or an exchange, and what limits it.

    simulate --topology p3.16xlarge.yaml --strategy ring

    simulate --topology p3.16xlarge --workload resnet50 --batch 64

    Also: simulate best (layout search), scale (scaling curve), scenario (ready examples); machines, networks, parts,
    strategies (lists).
    """
    given = locals()
    del debug  # read from the arguments when errors are shown
    if version:
        from simulator import __version__

        typer.echo(f"simulate {__version__}")
        return
    if completion is not None:
        typer.echo(complete.script(completion))
        return
    from dataclasses import fields

    from simulator.cli.ask import run
    from simulator.cli.written import Written

    given["sizes"], given["parallel"] = tuple(sizes or ()), tuple(parallel or ())
    run(Written(**{field.name: given[field.name] for field in fields(Written)}))
