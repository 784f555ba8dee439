"""The options of ``simulate``.  What they ask for is imported when it is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli import complete
from simulator.cli.help import GroupedCommand

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
        str,
        typer.Option(
            autocompletion=complete.networks,
            metavar="WHAT",
            help="A network (resnet50, layers.yaml, a config.json of Hugging Face or its folder, "
            "torch:package.module:factory): its gradients are exchanged, or with --batch a step of it "
            "is run. torch: runs your code, looked up in the current folder first. Or a size "
            "(bytes:160MB), or a sweep over sizes (sweep:8B-8GB; sweep:8B-8GB:4 multiplies by 4). Or "
            "a single operation: op:linear,rows=512,inputs=1024,outputs=4096, copy:h2d,160MB, "
            "access:stream,64MiB, launch:stream,op=elementwise,function=relu,elements=64, "
            "disk:read_random,4KiB, message:4KiB, core:mutex; over sizes "
            "access:chase,sweep:4KiB-1GiB. Or a program, what Python issues to devices: loop.yaml.",
        ),
    ] = "resnet50",
    strategy: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.strategies,
            metavar="NAMES",
            help="How GPUs exchange: one strategy, several separated by commas, or all. Default: all, and "
            "nccl in a step.",
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
        typer.Option(metavar="COUNT", help="Join this many of the machine by a network."),
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.fabrics,
            metavar="PART",
            help="The link part of that network, for example infiniband-edr, or a rate of Ethernet "
            "(25Gbit/s). Default: the rate of the adapters.",
        ),
    ] = None,
    nccl: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="Version of NCCL whose costs are used, for example 2.18. Default: today's."
        ),
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where parameter servers run: own (machines without GPUs), workers, or CPUs "
            "(node4.cpu0,...). Default: own where there are such machines.",
        ),
    ] = None,
    slow_link: Annotated[
        str | None,
        typer.Option(
            metavar="A-B:0.5x,...",
            help="The links between two devices give only this share of their rate; 0x: they have failed; "
            "for a while: 0x@10ms..50ms.",
        ),
    ] = None,
    neighbour: Annotated[
        str | None,
        typer.Option(metavar="A-B:5GB/s,...", help="Another job moves this much from one device to another."),
    ] = None,
    collective: Annotated[
        str,
        typer.Option(
            autocompletion=complete.collectives,
            metavar="NAME",
            help="all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all or send-recv.",
        ),
    ] = "all-reduce",
    root: Annotated[
        str, typer.Option(metavar="RANK", help="Rank at which a broadcast starts and a reduce ends.")
    ] = "0",
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="A>B,...", help="Sender and receiver of each send-recv. Default: each rank sends to the next."
        ),
    ] = None,
    group_size: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Groups of this many ranks exchange at the same time, each within itself."),
    ] = None,
    gpus_per_process: Annotated[
        str,
        typer.Option(metavar="COUNT", help="GPUs that one host thread launches for, as nccl-tests' -g; for nccl."),
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
            help="Type of the elements: fp64, fp32, tf32, fp16, bf16, int8, uint8, fp8. Switches do not "
            "add up types of 8 bits.",
        ),
    ] = "fp32",
    redop: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How the elements of all GPUs are combined: sum, avg, prod, min, max; for nccl."
        ),
    ] = "sum",
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Pass repeated rounds as one event; the result is the same.")
    ] = True,
    batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Simulate a step of the network with this many samples a GPU.")
    ] = None,
    global_batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="The same, with this many samples on all GPUs together.")
    ] = None,
    epoch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Also say how long an epoch of this many samples takes.")
    ] = None,
    input: Annotated[  # noqa: A002  as the option is called
        str | None,
        typer.Option(
            metavar="SET,KEY=VALUE,...",
            help="Where samples come from: a data set (imagenet), a YAML file, or sample=4KB; then "
            "disk=ebs0, workers=8, prefetch=2, block=1MB, cache=memory, epochs=3, pinned=no, "
            "batch_time=2ms, evaluate=10000, ...",
        ),
    ] = None,
    programs: Annotated[
        str,
        typer.Option(
            metavar="COUNT", help="This many processes do the step on one GPU, which runs one of them at a time."
        ),
    ] = "1",
    micro_batches: Annotated[
        str, typer.Option(metavar="COUNT", help="Sum the gradients of this many batches before the update.")
    ] = "1",
    micro_batch: Annotated[
        str | None,
        typer.Option(
            metavar="SAMPLES",
            help="Samples of a micro-batch of one replica; --global-batch then says how many micro-batches there are.",
        ),
    ] = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYOUT",
            help="dp: each GPU has a replica (DDP). fsdp: each has a shard of the parameters (FSDP, "
            "ZeRO-3). dataparallel: nn.DataParallel. loop: one Python loop feeds all GPUs and sums "
            "gradient by gradient. Or degrees: tp=8,pp=4,dp=2, with sp, cp, ep, vp, zero, schedule, "
            "order. Repeat the option to compare layouts.",
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="For dp: exchange gradients in buckets during the backward pass (bucket:25MiB), or all "
            "after it (none).",
        ),
    ] = "bucket:25MiB",
    staleness: Annotated[
        str,
        typer.Option(
            metavar="STEPS",
            help="For parameter servers: how many steps a node may be ahead of the slowest; async: nobody waits.",
        ),
    ] = "0",
    straggler: Annotated[
        str | None,
        typer.Option(metavar="NAME:1.5x,...", help="A GPU or a node that takes this many times as long to compute."),
    ] = None,
    divide: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="For dp on unlike devices: equal shares of the batch (even), or such that all finish together (best); "
            "best,cpu0 lets a CPU help.",
        ),
    ] = "even",
    lose: Annotated[
        str | None,
        typer.Option(metavar="CPU@TIME", help="For parameter servers: one fails this long after the start of a step."),
    ] = None,
    mtbf: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Mean time between failures of the run, which then goes on from its last checkpoint."
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help="Steps between checkpoints, with --mtbf. Default: as often as is best."),
    ] = None,
    checkpoint_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time to write a checkpoint. Default: what the first disk takes.")
    ] = None,
    restart_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time from a failure to the first step again. Default: none.")
    ] = None,
    reduce_fp32: Annotated[
        bool, typer.Option("--reduce-fp32", help="For fsdp: sum gradients of 16 bits in fp32.")
    ] = False,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch/--no-prefetch",
            help="For fsdp, backward: gather the next unit while one computes, or after it. For zero=1 and "
            "2: gather parameters while the next step computes, or after the update.",
        ),
    ] = True,
    contention: Annotated[
        bool,
        typer.Option(
            "--contention/--no-contention",
            help="Count what slows several GPUs: kernels and exchanges at once, copies into buckets, the slowest rank.",
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
            "master-bf16, fp64, or torch (fp32, convolutions in TF32 where the GPU has it); for "
            "inference also int8 and int4. Default: amp-bf16 with fused attention for GPT, Llama and "
            "the like where the device can, else torch.",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.optimizers,
            metavar="NAME",
            help="momentum, adam, lamb, bert-adam, sgd, none. Default: adam for sequences, otherwise momentum.",
        ),
    ] = None,
    seq_len: Annotated[str | None, typer.Option(metavar="COUNT", help="Tokens of a sequence.")] = None,
    image: Annotated[str | None, typer.Option(metavar="COUNT", help="Pixels of an image's side.")] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A size of the network, for example layers=12 or attention=fused; repeatable.",
        ),
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Fuse pointwise operators, as compilers do.")] = False,
    cuda_graph: Annotated[bool, typer.Option("--cuda-graph", help="Launch all kernels of a step by one call.")] = False,
    cuda_graph_blocks: Annotated[
        bool,
        typer.Option(
            "--cuda-graph-blocks",
            help="Launch the kernels of each block, except its experts, by one call in each pass.",
        ),
    ] = False,
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute",
            help="Keep only the inputs of repeated blocks, and run these forward again in the backward pass.",
        ),
    ] = False,
    recompute_attention: Annotated[
        bool,
        typer.Option(
            "--recompute-attention", help="Run only attention forward again, from its inputs (selective recomputation)."
        ),
    ] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Store images pixel by pixel, as tensor cores read them.")
    ] = False,
    fused_optimizer: Annotated[
        bool, typer.Option("--fused-optimizer", help="Update all parameters by one kernel (fused=True).")
    ] = False,
    framework: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who issues operators: pytorch, megatron (Megatron-LM), tensorflow (a kernel an operation), caffe.",
        ),
    ] = "pytorch",
    cpu_library: Annotated[
        str, typer.Option(metavar="NAME", help="Kernels of CPUs: onednn, or blas as frameworks of 2016 used it.")
    ] = "onednn",
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only this device: gpu0, cpu0, or cpu. Default for a single operation: the first GPU."
        ),
    ] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Threads of a CPU. Default: one for each core.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE", help="Constants of single devices, as validate calibrate writes them.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            metavar="LINE",
            help="A launch line of Megatron-LM, torchrun or DeepSpeed in place of these options, or "
            "@script.sh. It is read, not run.",
        ),
    ] = None,
    show_options: Annotated[
        bool, typer.Option("--show-options", help="Print what --launch says as a command with options.")
    ] = False,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Of a step: what faster links, devices or hosts and other settings would gain."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document in place of tables.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace (JSON), which opens in Perfetto."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the comparison and the machine, or the step (.svg, .png or .pdf)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors on standard error.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            help='Print the script that completes names in bash, zsh or fish: eval "$(simulate --completion bash)".',
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Simulate a training step or an exchange on a machine, and what bounds it.

    simulate --topology p3.16xlarge.yaml --strategy ring

    simulate --topology p3.16xlarge --workload resnet50 --batch 64

    Also: simulate best (a search), scale (a curve), scenario (ready questions); machines, networks, parts, strategies.
    """
    given = locals()
    del debug  # read from the arguments where errors are shown
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
