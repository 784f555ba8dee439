"""The options, by group: the machine, what is asked of it, an exchange, a step and how it is divided, failures."""

from __future__ import annotations

from typing import ClassVar

from simulator.cli.option import option, switch
from simulator.records import dataclass


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MachineOptions:
    """The machine, and what is unusual about it."""

    title: ClassVar[str] = "Machine"
    example: ClassVar[str] = "--topology p3.16xlarge --nodes 4 --fabric 100Gbit/s"

    topology: str | None = option(
        "FILES",
        "A machine: a YAML file, a built-in name, a part (h100-sxm5-80gb), or - for standard input. Machines "
        "separated by commas are compared.",
        complete="machines",
        listed=True,
    )
    nodes: str | None = option("COUNT", "Connect this many machines by a network.")
    fabric: str | None = option(
        "PART",
        "Link part of that network, for example infiniband-edr, or an Ethernet rate (25Gbit/s). Default: the rate of "
        "the adapters.",
        complete="fabrics",
    )
    gpus: str | None = option(
        "WHICH",
        "The first four (4), the fastest four (best:4), a range (0-4) or a list (0,2,5). Default: all.",
        read_by=("exchange", "step"),
        says_too="device",
        listed=True,
    )
    device: str | None = option(
        "NAME",
        "Use only this device: gpu0, cpu0, or cpu. Default for a single operation: the first GPU.",
        read_by=("step", "single", "program"),
    )
    threads: str | None = option("COUNT", "CPU threads. Default: one per core.", read_by=("step", "single", "program"))
    slow_link: str | None = option(
        "A-B:0.5x,...",
        "Links between two devices run at this fraction of their rate; 0x: they have failed; 0x@10ms..50ms: during "
        "this time, whatever holds otherwise; node*.nic[4-7]-network: of all nodes.",
    )
    neighbour: str | None = option(
        "A-B:5GB/s,...", "Another job moves data at this rate from one device to another; gpu[0-3]-gpu[4-7]: four jobs."
    )
    straggler: str | None = option(
        "NAME:1.5x,...",
        "A GPU or node that computes this many times slower; also gpu[0-3], node*.gpu3.",
        read_by=("step",),
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StrategyOptions:
    """What is asked, and by which strategy."""

    title: ClassVar[str] = "Question"
    example: ClassVar[str] = "--topology dgx-h100 --workload sweep:8B-8GB --strategy nccl"

    workload: str | None = option(
        "WHAT",
        "A network: resnet50, layers.yaml, a Hugging Face config.json or its folder, or "
        "torch:package.module:factory, which runs your code (the current folder is searched first). Its gradients "
        "are exchanged; with --batch, a step of it runs. Or a size (bytes:160MB) or a sweep of sizes (sweep:8B-8GB; "
        "sweep:8B-8GB:4 multiplies by 4). Or a single operation: op:linear,rows=512,inputs=1024,outputs=4096, "
        "copy:h2d,160MB, access:stream,64MiB, launch:stream,op=elementwise,function=relu,elements=64, "
        "disk:read_random,4KiB, message:4KiB, core:mutex; over a sweep of sizes, access:chase,sweep:4KiB-1GiB. Or a "
        "program, the operations that Python issues: loop.yaml.",
        complete="networks",
        usual="resnet50",
    )
    strategy: str | None = option(
        "NAMES",
        "How GPUs exchange: one strategy, several separated by commas, or all. Default: all; nccl in a step.",
        complete="strategies",
        read_by=("exchange", "step"),
        listed=True,
    )
    nccl: str | None = option(
        "VERSION",
        "NCCL version to model, for example 2.18. Default: the latest.",
        read_by=("exchange", "step"),
        version="2.20",
    )
    algorithm: str | None = option(
        "NAME",
        "NCCL's algorithm (NCCL_ALGO): ring, tree, nvls, nvls_tree, pat. Default: what NCCL chooses.",
        read_by=("exchange", "step"),
    )
    protocol: str | None = option(
        "NAME",
        "NCCL's protocol (NCCL_PROTO): LL, LL128, Simple. Default: what NCCL chooses.",
        read_by=("exchange", "step"),
    )
    nvls: bool = switch("Let NCCL use NVLS (NCCL_NVLS_ENABLE).", default=True, read_by=("exchange", "step"))


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ExchangeOptions:
    """An exchange alone."""

    title: ClassVar[str] = "Exchange"
    example: ClassVar[str] = "--topology dgx-h100 --workload bytes:1GB --strategy nccl --collective all-gather"
    read_by: ClassVar[tuple[str, ...]] = ("exchange",)

    collective: str = option(
        "NAME",
        "all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all or send-recv.",
        default="all-reduce",
        complete="collectives",
    )
    root: str = option("RANK", "Root of a broadcast or reduce.", default="0")
    pairs: str | None = option(
        "A>B,...", "Sender and receiver of each send-recv. Default: each rank sends to the next."
    )
    group_size: str | None = option("COUNT", "Split the ranks into groups of this size that exchange at the same time.")
    gpus_per_process: str = option("COUNT", "GPUs per host thread, like nccl-tests' -g; for nccl.", default="1")
    dtype: str = option(
        "TYPE",
        "Element type: fp64, fp32, tf32, fp16, bf16, int8 to int64, uint8 to uint64, fp8. Switches cannot reduce "
        "8-bit types.",
        default="fp32",
    )
    redop: str = option("NAME", "Reduction: sum, avg, prod, min, max; for nccl.", default="sum")
    fold: bool = switch("Simulate repeated rounds as one event; the result is the same.", default=True)


OVERLAP = "bucket:25MiB"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StepOptionsGroup:
    """A step of a network."""

    title: ClassVar[str] = "Step"
    example: ClassVar[str] = "--topology p3.2xlarge --workload resnet50 --batch 64 --precision amp-fp16"
    read_by: ClassVar[tuple[str, ...]] = ("step",)

    batch: str | None = option("COUNT", "Simulate a step with this many samples per GPU.", says_too="global_batch")
    global_batch: str | None = option("COUNT", "Simulate a step with this many samples on all GPUs together.")
    micro_batch: str | None = option(
        "SAMPLES", "Samples per micro-batch and replica; with --global-batch, this sets the number of micro-batches."
    )
    micro_batches: str = option("COUNT", "Batches whose gradients are summed before the update.", default="1")
    mode: str = option("NAME", "train, inference, forward, backward.", default="train", complete="modes")
    precision: str | None = option(
        "NAME",
        "fp32, tf32, fp16, bf16, amp-fp16, amp-bf16, graph-fp16, graph-bf16, master-fp16, master-bf16, master-fp8, "
        "nvfp4, fp64, or torch (fp32, convolutions in TF32 if the GPU has it); for inference also int8 and int4. "
        "Default: amp-bf16 with fused attention for language models like GPT and Llama if the device supports it, "
        "else torch.",
        complete="precisions",
    )
    optimizer: str | None = option(
        "NAME",
        "momentum, adam, lamb, adam-loop, bert-adam, sgd, none; bitsandbytes' adam-8bit, paged-adam, "
        "paged-adam-8bit. Default: adam for sequences, otherwise momentum.",
        complete="optimizers",
    )
    seq_len: str | None = option("COUNT", "Tokens per sequence.")
    image: str | None = option("COUNT", "Image width and height in pixels.")
    sizes: tuple[str, ...] = option(
        "NAME=VALUE", "A size of the network, for example layers=12 or attention=fused; repeatable.", default=()
    )
    compiled: bool = switch("Fuse pointwise operators, as compilers do.", read_by=("step", "program"))
    cuda_graph: bool = switch("Launch a step as one CUDA graph.", read_by=("step", "program"))
    cuda_graph_blocks: bool = switch("Launch each block, except its experts, as one CUDA graph per pass.")
    launch_blocking: bool = switch("Wait for each kernel before the next is issued (CUDA_LAUNCH_BLOCKING=1).")
    expandable_segments: bool = switch(
        "PyTorch's allocator grows its segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
    )
    accumulate: str | None = option(
        "HOW",
        "What adds the gradients of micro-batches: add (a pass of its own), product (the product that makes them), "
        "or fp32 (passes into a copy in fp32, DeepSpeed's BF16_Optimizer). Default: product with --framework "
        "megatron, otherwise add.",
    )
    recompute: bool = switch("Keep only the inputs of repeated blocks, and recompute them in the backward pass.")
    recompute_attention: bool = switch("Recompute only attention, from its inputs (selective recomputation).")
    recompute_operators: bool = switch(
        "Keep attention and every second product, and recompute the rest (torchtitan's selective)."
    )
    recompute_parts: str | None = option("NAME,...", "Recompute these parts, as --recompute-modules of Megatron-LM.")
    recompute_blocks: str | None = option("COUNT", "Recompute only the first blocks of each pipeline stage.")
    channels_last: bool = switch("Channels-last image layout, as tensor cores read it.")
    fused_optimizer: bool = switch("Update all parameters in one kernel (fused=True).")
    framework: str = option(
        "NAME",
        "What issues operators: pytorch, megatron (Megatron-LM), deepspeed-zero3 (its hooks around each layer), "
        "adaptdl (its statistics of gradients), tensorflow (a kernel an operation), caffe.",
        default="pytorch",
    )
    cpu_library: str = option(
        "NAME",
        "CPU kernels: onednn; or of 2016: blas (Caffe), torch7, mshadow (MXNet), cntk, eigen (TensorFlow).",
        default="onednn",
    )
    libraries: str | None = option(
        "MONTH",
        "Month of the GPU's kernel libraries (cuBLAS, cuDNN) and of the compiler, for example 2020-10, or a version of "
        "PyTorch, torch-2.1: young ones are slower. Default: mature ones.",
        version="2020-10",
    )
    gpu_clock: str | None = option(
        "CLOCK", "Hold GPUs to this clock, as nvidia-smi --lock-gpu-clocks or a Tesla K80 without auto boost (562MHz)."
    )
    calibration: str | None = option(
        "FILE", "Calibrated constants of devices, from validate calibrate.", read_by=("step", "single", "program")
    )
    input: str | None = option(
        "SET,KEY=VALUE,...",
        "Source of the samples: a data set (imagenet), a YAML file, or sample=4KB; then disk=ebs0, workers=8, "
        "prefetch=2, block=1MB, cache=memory, epochs=3, pinned=no, batch_time=2ms, evaluate=10000, ...",
    )
    offload: str = option(
        "WHAT",
        "Keep in the host's memory and update on its CPUs: optimizer (DeepSpeed's ZeRO-Offload; with zero=1, zero=2 or "
        "fsdp, or on one GPU), optimizer+parameters (with fsdp, or on one GPU), none.",
        default="none",
    )
    offload_to: str = option(
        "PLACE", "Where --offload keeps it: host, or nvme, the machine's disks (DeepSpeed's stage 3).", default="host"
    )
    round_robin_gradients: bool = switch(
        "With --offload and zero=1 or 2: parameters go round the ranks, which copy gradients to the host together."
    )
    epoch: str | None = option("COUNT", "Also show the time of an epoch of this many samples.")
    programs: str = option("COUNT", "Processes that share one GPU, which runs one of them at a time.", default="1")
    what_if: bool = switch("For a step: the gain from faster links, devices and hosts, and from other settings.")
    trust_code: bool = switch("Let a program file run code (run: torch:module:factory).", read_by=("program",))


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Parallelism:
    """How devices divide a step."""

    title: ClassVar[str] = "Parallelism"
    example: ClassVar[str] = "--topology dgx-a100-80gb --nodes 2 --workload llama2-7b --batch 1 --parallel fsdp"
    read_by: ClassVar[tuple[str, ...]] = ("step",)

    parallel: tuple[str, ...] = option(
        "LAYOUT",
        "dp: a replica on each GPU (DDP). fsdp: a shard of the parameters on each GPU (FSDP, ZeRO-3). dataparallel: "
        "nn.DataParallel. loop: one Python loop drives all GPUs and sums gradients one by one. Or degrees: "
        "tp=8,pp=4,dp=2, with sp, cp, ep, vp, zero, schedule, order. Repeat the option to compare layouts.",
        default=(),
    )
    overlap: str = option(
        "HOW",
        "For dp: exchange gradients in buckets during the backward pass (bucket:25MiB), or after it (none).",
        default=OVERLAP,
        listed=True,
    )
    reduce_fp32: bool = switch("For fsdp: sum 16-bit gradients in fp32.")
    gather_fp32: bool = switch(
        "For fsdp with amp-: all-gather parameters in fp32, which autocast then casts (FSDP without MixedPrecision)."
    )
    gradient_as_bucket_view: bool = switch("For dp: gradients are parts of the buckets, and not copied out of them.")
    prefetch: bool = switch(
        "For fsdp, in the backward pass: all-gather the next unit while one computes, or after it. For zero=1 and 2: "
        "all-gather parameters while the next step computes, or after the update.",
        default=True,
    )
    contention: bool = switch(
        "Include what slows several GPUs: kernels and exchanges that overlap, bucket copies, stragglers.", default=True
    )
    divide: str = option(
        "HOW",
        "For dp on different devices: divide the batch evenly (even) or so that all finish together (best); "
        "best,cpu0 includes a CPU.",
        default="even",
    )
    servers: str | None = option(
        "WHERE",
        "Where parameter servers run: own (machines without GPUs), workers, or CPUs (node4.cpu0,...). Default: own, "
        "if there are such machines.",
        read_by=("exchange", "step"),
    )
    staleness: str = option(
        "STEPS", "For parameter servers: steps that a node may be ahead of the slowest; async: no limit.", default="0"
    )
    lose: str | None = option("CPU@TIME", "For parameter servers: this server fails at this time in a step.")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Failures:
    """A run that fails now and then."""

    title: ClassVar[str] = "Failures"
    example: ClassVar[str] = "--topology p3.16xlarge --workload resnet50 --batch 64 --mtbf 8h"
    read_by: ClassVar[tuple[str, ...]] = ("step",)

    mtbf: str | None = option("TIME", "Mean time between failures; a failed run resumes from its last checkpoint.")
    checkpoint_every: str | None = option(
        "STEPS", "Steps between checkpoints, with --mtbf. Default: the best interval."
    )
    checkpoint_time: str | None = option("TIME", "Time to write a checkpoint. Default: the time of the first disk.")
    restart_time: str | None = option("TIME", "Time from a failure to the next step. Default: none.")
