"""Options on the machine, on what is asked of it, and on an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from simulator.cli.option import Option

__all__ = ["Exchange", "Machine", "What"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine, and what is unusual about it."""

    title: ClassVar[str] = "Machine"
    example: ClassVar[str] = "--topology p3.16xlarge --nodes 4 --fabric 100Gbit/s"

    topology: Annotated[
        str | None,
        Option(
            "FILES",
            "A machine: a YAML file, a built-in name, a part (h100-sxm5-80gb), or - for standard input. "
            "Machines separated by commas are compared.",
            complete="machines",
            listed=True,
        ),
    ] = None
    nodes: Annotated[str | None, Option("COUNT", "Connect this many machines by a network.")] = None
    fabric: Annotated[
        str | None,
        Option(
            "PART",
            "Link part of that network, for example infiniband-edr, or an Ethernet rate (25Gbit/s). Default: "
            "the rate of the adapters.",
            complete="fabrics",
        ),
    ] = None
    gpus: Annotated[
        str | None,
        Option(
            "WHICH",
            "The first four (4), the fastest four (best:4), a range (0-4) or a list (0,2,5). Default: all.",
            read_by=("exchange", "step"),
            says_too="device",
            listed=True,
        ),
    ] = None
    device: Annotated[
        str | None,
        Option(
            "NAME",
            "Use only this device: gpu0, cpu0, or cpu. Default for a single operation: the first GPU.",
            read_by=("step", "single", "program"),
        ),
    ] = None
    threads: Annotated[
        str | None, Option("COUNT", "CPU threads. Default: one per core.", read_by=("step", "single", "program"))
    ] = None
    slow_link: Annotated[
        str | None,
        Option(
            "A-B:0.5x,...",
            "Links between two devices run at this fraction of their rate; 0x: they have failed; "
            "0x@10ms..50ms: during this time, whatever holds otherwise; node*.nic[4-7]-network: of all nodes.",
        ),
    ] = None
    neighbour: Annotated[
        str | None,
        Option(
            "A-B:5GB/s,...",
            "Another job moves data at this rate from one device to another; gpu[0-3]-gpu[4-7]: four jobs.",
        ),
    ] = None
    straggler: Annotated[
        str | None,
        Option(
            "NAME:1.5x,...",
            "A GPU or node that computes this many times slower; also gpu[0-3], node*.gpu3.",
            read_by=("step",),
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class What:
    """What is asked, and by which strategy."""

    title: ClassVar[str] = "Question"
    example: ClassVar[str] = "--topology dgx-h100 --workload sweep:8B-8GB --strategy nccl"

    workload: Annotated[
        str | None,
        Option(
            "WHAT",
            "A network: resnet50, layers.yaml, a Hugging Face config.json or its folder, or "
            "torch:package.module:factory, which runs your code (the current folder is searched first). Its "
            "gradients are exchanged; with --batch, a step of it runs. Or a size (bytes:160MB) or a sweep of "
            "sizes (sweep:8B-8GB; sweep:8B-8GB:4 multiplies by 4). Or a single operation: "
            "op:linear,rows=512,inputs=1024,outputs=4096, copy:h2d,160MB, access:stream,64MiB, "
            "launch:stream,op=elementwise,function=relu,elements=64, disk:read_random,4KiB, message:4KiB, "
            "core:mutex; over a sweep of sizes, access:chase,sweep:4KiB-1GiB. Or a program, the operations "
            "that Python issues: loop.yaml.",
            complete="networks",
            usual="resnet50",
        ),
    ] = None
    strategy: Annotated[
        str | None,
        Option(
            "NAMES",
            "How GPUs exchange: one strategy, several separated by commas, or all. Default: all; nccl in a step.",
            complete="strategies",
            read_by=("exchange", "step"),
            listed=True,
        ),
    ] = None
    nccl: Annotated[
        str | None,
        Option(
            "VERSION",
            "NCCL version to model, for example 2.18. Default: the latest.",
            read_by=("exchange", "step"),
            version="2.20",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """An exchange alone."""

    title: ClassVar[str] = "Exchange"
    example: ClassVar[str] = "--topology dgx-h100 --workload bytes:1GB --strategy nccl --collective all-gather"
    read_by: ClassVar[tuple[str, ...]] = ("exchange",)

    collective: Annotated[
        str,
        Option(
            "NAME",
            "all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all or send-recv.",
            complete="collectives",
        ),
    ] = "all-reduce"
    root: Annotated[str, Option("RANK", "Root of a broadcast or reduce.")] = "0"
    pairs: Annotated[
        str | None, Option("A>B,...", "Sender and receiver of each send-recv. Default: each rank sends to the next.")
    ] = None
    group_size: Annotated[
        str | None, Option("COUNT", "Split the ranks into groups of this size that exchange at the same time.")
    ] = None
    gpus_per_process: Annotated[str, Option("COUNT", "GPUs per host thread, like nccl-tests' -g; for nccl.")] = "1"
    algorithm: Annotated[
        str | None,
        Option("NAME", "NCCL's algorithm (NCCL_ALGO): ring, tree, nvls, nvls_tree, pat. Default: what NCCL chooses."),
    ] = None
    dtype: Annotated[
        str,
        Option(
            "TYPE",
            "Element type: fp64, fp32, tf32, fp16, bf16, int8 to int64, uint8 to uint64, fp8. Switches cannot "
            "reduce 8-bit types.",
        ),
    ] = "fp32"
    redop: Annotated[str, Option("NAME", "Reduction: sum, avg, prod, min, max; for nccl.")] = "sum"
    fold: Annotated[bool, Option("", "Simulate repeated rounds as one event; the result is the same.")] = True
