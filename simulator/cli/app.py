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
            help="A machine: a YAML file, a built-in name, a part (h100-sxm5-80gb), or - for standard input; "
            "several with commas between are compared.",
        ),
    ] = None,
    workload: Annotated[
        str,
        typer.Option(
            autocompletion=complete.networks,
            metavar="WHAT",
            help="A network: its gradients are exchanged, or with --batch a step of it is run (resnet50, a config.json "
            "of Hugging Face or its folder, layers.yaml, torch:package.module:factory, run as code, from the current "
            "folder first). A size (bytes:160MB), or a sweep over sizes (sweep:8B-8GB, with a factor "
            "sweep:8B-8GB:4). Or a single operation: "
            "op:linear,rows=512,inputs=1024,outputs=4096, copy:h2d,160MB, access:stream,64MiB, "
            "launch:stream,op=elementwise,function=relu,elements=64, disk:read_random,4KiB, message:4KiB, core:mutex; "
            "over sizes access:chase,sweep:4KiB-1GiB. Or a program, what Python issues to devices: loop.yaml.",
        ),
    ] = "resnet50",
    strategy: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.strategies,
            metavar="NAMES",
            help="How GPUs exchange: one strategy, several with commas between, or all. Else all, and nccl in a step.",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="The first so many (4), the fastest so many (best:4), a range (0-4) or a list (0,2,5); else all.",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="So many of the machine, joined by a network."),
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.fabrics,
            metavar="PART",
            help="That network's link part, for example infiniband-edr, or a rate of Ethernet (25Gbit/s).",
        ),
    ] = None,
    nccl: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Whose costs NCCL has, for example 2.18; else today's.")
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where parameter servers stand: own (machines without GPUs), workers, or CPUs (node4.cpu0,...); else "
            "own where there are any.",
        ),
    ] = None,
    slow_link: Annotated[
        str | None,
        typer.Option(
            metavar="A-B:0.5x,...",
            help="The links between two devices give so much less; 0x: they failed; a while: 0x@10ms..50ms.",
        ),
    ] = None,
    neighbour: Annotated[
        str | None,
        typer.Option(metavar="A-B:5GB/s,...", help="Another job moves so much from one device to another."),
    ] = None,
    # -- of an exchange
    collective: Annotated[
        str, typer.Option(autocompletion=complete.collectives, metavar="NAME", help="all-reduce, all-gather, ...")
    ] = "all-reduce",
    root: Annotated[str, typer.Option(metavar="RANK", help="Where a broadcast starts and a reduce ends.")] = "0",
    pairs: Annotated[
        str | None, typer.Option(metavar="A>B,...", help="Ranks of a send-recv; else each to the next.")
    ] = None,
    group_size: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Groups of so many ranks exchange at once, each by itself.")
    ] = None,
    gpus_per_process: Annotated[
        str,
        typer.Option(metavar="COUNT", help="GPUs that one host thread launches for, as nccl-tests' -g; for nccl."),
    ] = "1",
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="NCCL_ALGO: ring, tree, nvls, nvls_tree, pat.")
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Of the elements: fp64, fp32, tf32, fp16, bf16, int8, uint8, fp8; a switch adds up none of 8 bits.",
        ),
    ] = "fp32",
    redop: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="What is made of the elements of all GPUs: sum, avg, prod, min, max; for nccl."
        ),
    ] = "sum",
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Pass repeated rounds as one event; the result is the same.")
    ] = True,
    # -- of a step
    batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Simulate a step of the network, with so many samples a GPU.")
    ] = None,
    global_batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="As --batch, with so many samples on all GPUs together.")
    ] = None,
    epoch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Say how long so many samples take, step by step.")
    ] = None,
    input: Annotated[  # noqa: A002  as the option is called
        str | None,
        typer.Option(
            metavar="SET,KEY=VALUE,...",
            help="Where samples come from: a data set (imagenet), a YAML file, or sample=4KB; then disk=ebs0, "
            "workers=8, prefetch=2, block=1MB, cache=memory, epochs=3, pinned=no, batch_time=2ms, evaluate=10000, ...",
        ),
    ] = None,
    programs: Annotated[
        str,
        typer.Option(metavar="COUNT", help="So many processes do the step on one GPU, which runs one at a time."),
    ] = "1",
    micro_batches: Annotated[
        str, typer.Option(metavar="COUNT", help="Gradients of so many batches are summed before the update.")
    ] = "1",
    micro_batch: Annotated[
        str | None,
        typer.Option(metavar="SAMPLES", help="Of a replica; with --global-batch, which says how many there are."),
    ] = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYOUT",
            help="dp: each GPU has a replica (DDP); fsdp: a shard of the parameters (FSDP, ZeRO-3); dataparallel: "
            "nn.DataParallel; loop: one Python loop feeds all GPUs and sums gradient by gradient; or degrees: "
            "tp=8,pp=4,dp=2, with sp, cp, ep, vp, zero, schedule, order. Again for another layout.",
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Of dp: gradients are exchanged in buckets while the backward pass goes on (bucket:25MiB), or after "
            "it (none).",
        ),
    ] = "bucket:25MiB",
    staleness: Annotated[
        str,
        typer.Option(
            metavar="STEPS",
            help="Of parameter servers: how many steps a node may be ahead of the slowest; 0: all wait for all; async.",
        ),
    ] = "0",
    straggler: Annotated[
        str | None,
        typer.Option(metavar="NAME:1.5x,...", help="A GPU or a node that computes so many times as long."),
    ] = None,
    divide: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Of dp: the batch over unlike devices: even, or best: all finish together; with a CPU: best,cpu0.",
        ),
    ] = "even",
    lose: Annotated[
        str | None,
        typer.Option(metavar="CPU@TIME", help="Of parameter servers: one is gone so long after the start of a step."),
    ] = None,
    mtbf: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="A run fails once in so long on average, and goes on from a checkpoint."),
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(metavar="STEPS", help="With --mtbf; else as often as is best.")
    ] = None,
    checkpoint_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="What writing one takes; else what the first disk takes.")
    ] = None,
    restart_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="From a failure to the first step again; else none.")
    ] = None,
    reduce_fp32: Annotated[
        bool, typer.Option("--reduce-fp32", help="Of fsdp: gradients of 16 bits are summed in fp32.")
    ] = False,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch/--no-prefetch",
            help="Of fsdp, backward: the next unit is gathered while one computes (BACKWARD_PRE), or after it (POST). "
            "Of zero=1 and 2: parameters are gathered while the next step computes, or after the update.",
        ),
    ] = True,
    contention: Annotated[
        bool,
        typer.Option(
            "--contention/--no-contention",
            help="What computes and exchanges at once slow each other; copies into buckets; the slowest rank.",
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
            help="torch (fp32, convolutions in TF32 where the GPU has it), fp32, tf32, fp16, bf16, "
            "amp-fp16, amp-bf16, graph-fp16, graph-bf16, master-fp16, master-bf16, fp64; of inference int8, int4; else "
            "amp-bf16 and fused attention for GPT, Llama and the like, as far as the device has it, or torch.",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete.optimizers,
            metavar="NAME",
            help="momentum, adam, lamb, bert-adam, sgd, none; else adam for sequences, or momentum.",
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
    compiled: Annotated[bool, typer.Option("--compile", help="Fuse pointwise operators, as compilers do.")] = False,
    cuda_graph: Annotated[bool, typer.Option("--cuda-graph", help="Launch a step's kernels by one call.")] = False,
    cuda_graph_blocks: Annotated[
        bool,
        typer.Option("--cuda-graph-blocks", help="Launch those of a block, all but its experts, by a call each pass."),
    ] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Keep the inputs of repeated blocks only; run them forward again.")
    ] = False,
    recompute_attention: Annotated[
        bool, typer.Option("--recompute-attention", help="Run attention forward again, from its inputs (selective).")
    ] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Images pixel by pixel in memory, as tensor cores read them.")
    ] = False,
    fused_optimizer: Annotated[
        bool, typer.Option("--fused-optimizer", help="Update all parameters by one kernel (fused=True).")
    ] = False,
    framework: Annotated[
        str, typer.Option(metavar="NAME", help="What issues operators: pytorch, or megatron (Megatron-LM's modules).")
    ] = "pytorch",
    cpu_library: Annotated[
        str, typer.Option(metavar="NAME", help="Kernels of CPUs: onednn, or blas as frameworks of 2016 used it.")
    ] = "onednn",
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="One device: gpu0, cpu0, cpu; of a single operation else the first GPU."),
    ] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Threads of a CPU; else one for each core.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE", help="Constants of single devices, as validate calibrate writes them.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            metavar="LINE",
            help="A launch line of Megatron-LM, torchrun or DeepSpeed in place of these options, or @script.sh; it is "
            "read, not run.",
        ),
    ] = None,
    show_options: Annotated[
        bool, typer.Option("--show-options", help="Print the command with all that --launch says as options.")
    ] = False,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if", help="Of a step: what links, devices or a host twice as fast would gain, and switches."
        ),
    ] = False,
    # -- of all
    json: Annotated[bool, typer.Option("--json", help="One JSON document in place of tables.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace (JSON) that opens in Perfetto."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the comparison and the machine, or the step (.svg, .png or .pdf)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            help='Print what completes names in bash, zsh or fish: eval "$(simulate --completion bash)".',
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Simulate a training step or an exchange on a machine, and what bounds it.

    simulate --topology p3.16xlarge.yaml --strategy ring

    simulate --topology p3.16xlarge --workload resnet50 --batch 64

    Also: simulate best (a search of layouts), simulate scale (a curve), simulate scenario (ready questions); lists:
    simulate machines, networks, parts, strategies.
    """
    given = locals()
    del debug  # read from the arguments where errors are shown
    if version:
        from simulator import __version__

        typer.echo(f"simulate {__version__}")
        return
    if completion is not None:
        from simulator.cli.complete import SHELLS, script
        from simulator.cli.options import parse_choice

        typer.echo(script(parse_choice("--completion", completion, SHELLS)))
        return
    from dataclasses import fields

    from simulator.cli.ask import run
    from simulator.cli.written import Written

    given["sizes"], given["parallel"] = tuple(sizes or ()), tuple(parallel or ())
    run(Written(**{field.name: given[field.name] for field in fields(Written)}))
