"""Options on a step of a network, on how devices divide it, and on failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from simulator.cli.option import Option

__all__ = ["OVERLAP", "Failures", "Parallelism", "Step"]

OVERLAP = "bucket:25MiB"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a network."""

    title: ClassVar[str] = "Step"
    example: ClassVar[str] = "--topology p3.2xlarge --workload resnet50 --batch 64 --precision amp-fp16"
    read_by: ClassVar[tuple[str, ...]] = ("step",)

    batch: Annotated[
        str | None, Option("COUNT", "Simulate a step with this many samples per GPU.", says_too="global_batch")
    ] = None
    global_batch: Annotated[
        str | None, Option("COUNT", "Simulate a step with this many samples on all GPUs together.")
    ] = None
    micro_batch: Annotated[
        str | None,
        Option(
            "SAMPLES",
            "Samples per micro-batch and replica; with --global-batch, this sets the number of micro-batches.",
        ),
    ] = None
    micro_batches: Annotated[str, Option("COUNT", "Batches whose gradients are summed before the update.")] = "1"
    mode: Annotated[str, Option("NAME", "train, inference, forward, backward.", complete="modes")] = "train"
    precision: Annotated[
        str | None,
        Option(
            "NAME",
            "fp32, tf32, fp16, bf16, amp-fp16, amp-bf16, graph-fp16, graph-bf16, master-fp16, master-bf16, "
            "master-fp8, nvfp4, fp64, or torch (fp32, convolutions in TF32 if the GPU has it); for inference "
            "also int8 and int4. Default: amp-bf16 with fused attention for language models like GPT and Llama "
            "if the device supports it, else torch.",
            complete="precisions",
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        Option(
            "NAME",
            "momentum, adam, lamb, adam-loop, bert-adam, sgd, none. Default: adam for sequences, otherwise momentum.",
            complete="optimizers",
        ),
    ] = None
    seq_len: Annotated[str | None, Option("COUNT", "Tokens per sequence.")] = None
    image: Annotated[str | None, Option("COUNT", "Image width and height in pixels.")] = None
    sizes: Annotated[
        tuple[str, ...],
        Option("NAME=VALUE", "A size of the network, for example layers=12 or attention=fused; repeatable."),
    ] = ()
    compiled: Annotated[bool, Option("", "Fuse pointwise operators, as compilers do.", read_by=("step", "program"))] = (
        False
    )
    cuda_graph: Annotated[bool, Option("", "Launch a step as one CUDA graph.", read_by=("step", "program"))] = False
    cuda_graph_blocks: Annotated[
        bool, Option("", "Launch each block, except its experts, as one CUDA graph per pass.")
    ] = False
    launch_blocking: Annotated[
        bool, Option("", "Wait for each kernel before the next is issued (CUDA_LAUNCH_BLOCKING=1).")
    ] = False
    accumulate: Annotated[
        str | None,
        Option(
            "HOW",
            "What adds the gradients of micro-batches: add (a pass of its own), product (the product that "
            "makes them), or fp32 (passes into a copy in fp32, DeepSpeed's BF16_Optimizer). Default: product "
            "with --framework megatron, otherwise add.",
        ),
    ] = None
    recompute: Annotated[
        bool, Option("", "Keep only the inputs of repeated blocks, and recompute them in the backward pass.")
    ] = False
    recompute_attention: Annotated[
        bool, Option("", "Recompute only attention, from its inputs (selective recomputation).")
    ] = False
    recompute_operators: Annotated[
        bool, Option("", "Keep attention and every second product, and recompute the rest (torchtitan's selective).")
    ] = False
    recompute_parts: Annotated[
        str | None, Option("NAME,...", "Recompute these parts, as --recompute-modules of Megatron-LM.")
    ] = None
    recompute_blocks: Annotated[
        str | None, Option("COUNT", "Recompute only the first blocks of each pipeline stage.")
    ] = None
    channels_last: Annotated[bool, Option("", "Channels-last image layout, as tensor cores read it.")] = False
    fused_optimizer: Annotated[bool, Option("", "Update all parameters in one kernel (fused=True).")] = False
    framework: Annotated[
        str,
        Option(
            "NAME",
            "What issues operators: pytorch, megatron (Megatron-LM), deepspeed-zero3 (its hooks around each "
            "layer), tensorflow (a kernel an operation), caffe.",
        ),
    ] = "pytorch"
    cpu_library: Annotated[str, Option("NAME", "CPU kernels: onednn, or blas as frameworks used it in 2016.")] = (
        "onednn"
    )
    libraries: Annotated[
        str | None,
        Option(
            "MONTH",
            "Month of the GPU's kernel libraries (cuBLAS, cuDNN), for example 2020-10: young ones are slower. "
            "Default: mature ones.",
            version="2020-10",
        ),
    ] = None
    calibration: Annotated[
        str | None,
        Option(
            "FILE", "Calibrated constants of devices, from validate calibrate.", read_by=("step", "single", "program")
        ),
    ] = None
    input: Annotated[
        str | None,
        Option(
            "SET,KEY=VALUE,...",
            "Source of the samples: a data set (imagenet), a YAML file, or sample=4KB; then disk=ebs0, "
            "workers=8, prefetch=2, block=1MB, cache=memory, epochs=3, pinned=no, batch_time=2ms, "
            "evaluate=10000, ...",
        ),
    ] = None
    epoch: Annotated[str | None, Option("COUNT", "Also show the time of an epoch of this many samples.")] = None
    programs: Annotated[str, Option("COUNT", "Processes that share one GPU, which runs one of them at a time.")] = "1"
    what_if: Annotated[
        bool, Option("", "For a step: the gain from faster links, devices and hosts, and from other settings.")
    ] = False
    trust_code: Annotated[
        bool, Option("", "Let a program file run code (run: torch:module:factory).", read_by=("program",))
    ] = False


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """How devices divide a step."""

    title: ClassVar[str] = "Parallelism"
    example: ClassVar[str] = "--topology dgx-a100-80gb --nodes 2 --workload llama2-7b --batch 1 --parallel fsdp"
    read_by: ClassVar[tuple[str, ...]] = ("step",)

    parallel: Annotated[
        tuple[str, ...],
        Option(
            "LAYOUT",
            "dp: a replica on each GPU (DDP). fsdp: a shard of the parameters on each GPU (FSDP, ZeRO-3). "
            "dataparallel: nn.DataParallel. loop: one Python loop drives all GPUs and sums gradients one by "
            "one. Or degrees: tp=8,pp=4,dp=2, with sp, cp, ep, vp, zero, schedule, order. Repeat the option to "
            "compare layouts.",
        ),
    ] = ()
    overlap: Annotated[
        str,
        Option(
            "HOW",
            "For dp: exchange gradients in buckets during the backward pass (bucket:25MiB), or after it (none).",
            listed=True,
        ),
    ] = OVERLAP
    reduce_fp32: Annotated[bool, Option("", "For fsdp: sum 16-bit gradients in fp32.")] = False
    prefetch: Annotated[
        bool,
        Option(
            "",
            "For fsdp, in the backward pass: all-gather the next unit while one computes, or after it. For "
            "zero=1 and 2: all-gather parameters while the next step computes, or after the update.",
        ),
    ] = True
    contention: Annotated[
        bool,
        Option("", "Include what slows several GPUs: kernels and exchanges that overlap, bucket copies, stragglers."),
    ] = True
    divide: Annotated[
        str,
        Option(
            "HOW",
            "For dp on different devices: divide the batch evenly (even) or so that all finish together "
            "(best); best,cpu0 includes a CPU.",
        ),
    ] = "even"
    servers: Annotated[
        str | None,
        Option(
            "WHERE",
            "Where parameter servers run: own (machines without GPUs), workers, or CPUs (node4.cpu0,...). "
            "Default: own, if there are such machines.",
            read_by=("exchange", "step"),
        ),
    ] = None
    staleness: Annotated[
        str, Option("STEPS", "For parameter servers: steps that a node may be ahead of the slowest; async: no limit.")
    ] = "0"
    lose: Annotated[
        str | None, Option("CPU@TIME", "For parameter servers: this server fails at this time in a step.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Failures:
    """A run that fails now and then."""

    title: ClassVar[str] = "Failures"
    example: ClassVar[str] = "--topology p3.16xlarge --workload resnet50 --batch 64 --mtbf 8h"
    read_by: ClassVar[tuple[str, ...]] = ("step",)

    mtbf: Annotated[
        str | None, Option("TIME", "Mean time between failures; a failed run resumes from its last checkpoint.")
    ] = None
    checkpoint_every: Annotated[
        str | None, Option("STEPS", "Steps between checkpoints, with --mtbf. Default: the best interval.")
    ] = None
    checkpoint_time: Annotated[
        str | None, Option("TIME", "Time to write a checkpoint. Default: the time of the first disk.")
    ] = None
    restart_time: Annotated[str | None, Option("TIME", "Time from a failure to the next step. Default: none.")] = None
