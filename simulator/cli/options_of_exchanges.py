"""Options on the machine, on what is asked of it, and on an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.cli.option import option, switch


@dataclass(frozen=True, kw_only=True)
class Machine:
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


@dataclass(frozen=True, kw_only=True)
class What:
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


@dataclass(frozen=True, kw_only=True)
class Exchange:
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
    algorithm: str | None = option(
        "NAME", "NCCL's algorithm (NCCL_ALGO): ring, tree, nvls, nvls_tree, pat. Default: what NCCL chooses."
    )
    dtype: str = option(
        "TYPE",
        "Element type: fp64, fp32, tf32, fp16, bf16, int8 to int64, uint8 to uint64, fp8. Switches cannot reduce "
        "8-bit types.",
        default="fp32",
    )
    redop: str = option("NAME", "Reduction: sum, avg, prod, min, max; for nccl.", default="sum")
    fold: bool = switch("Simulate repeated rounds as one event; the result is the same.", default=True)
