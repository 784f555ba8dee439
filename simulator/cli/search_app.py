"""The options of ``simulate best`` and ``simulate scale``.  Their code is imported only when used."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli import complete
from simulator.cli.issuing_options import (
    Framework,
    Recompute,
    RecomputeAttention,
    RecomputeBlocks,
    RecomputeOperators,
    RecomputeParts,
)
from simulator.cli.written import Written

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)

Topology = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete.machines,
        metavar="FILE",
        help="A machine: a YAML file or a built-in name (simulate machines).",
    ),
]
Workload = Annotated[
    str,
    typer.Option(
        autocompletion=complete.networks, metavar="NETWORK", help="A network: gpt3-18b, layers.yaml, torch:..."
    ),
]
Fabric = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete.fabrics,
        metavar="PART",
        help="Link part between machines. Default: the rate of the adapters.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(autocompletion=complete.precisions, metavar="NAME", help="As for simulate."),
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete.optimizers,
        metavar="NAME",
        help="momentum, adam, lamb, adam-loop, bert-adam, sgd, none.",
    ),
]
SeqLen = Annotated[str | None, typer.Option(metavar="COUNT", help="Tokens per sequence.")]
Image = Annotated[str | None, typer.Option(metavar="COUNT", help="Image width and height in pixels.")]
Sizes = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A size of the network, for example layers=12.")
]
Compiled = Annotated[bool, typer.Option("--compile", help="Fuse pointwise operators, as compilers do.")]
Fused = Annotated[bool, typer.Option("--fused-optimizer", help="Update all parameters in one kernel.")]
Nccl = Annotated[str | None, typer.Option(metavar="VERSION", help="NCCL version to model. Default: the latest.")]
Calibration = Annotated[str | None, typer.Option(metavar="FILE", help="Calibrated constants of devices.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on standard error.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.callback()
def searches() -> None:
    """Search for the best layout of a step, or plot its scaling."""


@app.command(epilog=_EPILOG)
def best(
    topology: Topology = None,
    workload: Workload = "resnet50",
    nodes: Annotated[str | None, typer.Option(metavar="COUNT", help="Connect this many machines.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="The first four (4), a range (0-4) or a list (0,2,5). Default: all."),
    ] = None,
    fabric: Fabric = None,
    global_batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Samples per step on all GPUs together; required.")
    ] = None,
    micro_batch: Annotated[
        str | None,
        typer.Option(metavar="SAMPLES", help="Samples per micro-batch and replica. Default: try powers of two."),
    ] = None,
    parallel: Annotated[
        str | None,
        typer.Option(metavar="LAYOUT", help="Fixed degrees, for example tp=8,zero=1; all others are searched."),
    ] = None,
    recompute: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="none, selective (attention) or full (blocks). Default: try all three."),
    ] = None,
    top: Annotated[str, typer.Option(metavar="COUNT", help="Number of layouts to show.")] = "10",
    jobs: Annotated[str | None, typer.Option(metavar="COUNT", help="Processes. Default: one per core.")] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster, for example tcp://host:8786.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Save progress in this file, and resume from it."),
    ] = None,
    precision: Precision = None,
    optimizer: Optimizer = None,
    seq_len: SeqLen = None,
    image: Image = None,
    sizes: Sizes = None,
    compiled: Compiled = False,
    fused_optimizer: Fused = False,
    framework: Framework = "pytorch",
    nccl: Nccl = None,
    calibration: Calibration = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the fastest layout of a training step that fits into memory.

    Estimates every degree of parallelism, micro-batch, sharding and recomputation, and simulates the fastest.

    simulate best --topology dgx-a100-80gb --nodes 8 --workload gpt3-18b --global-batch 1024
    """
    given = locals()
    from simulator.cli.best_command import Wanted, run_best

    wanted = {
        name: given.pop(name) for name in ("parallel", "micro_batch", "recompute", "top", "jobs", "dask", "resume")
    }
    run_best(_written(given), Wanted(**wanted))


@app.command(epilog=_EPILOG)
def scale(
    topology: Topology = None,
    workload: Workload = "resnet50",
    nodes: Annotated[
        str | None,
        typer.Option(metavar="COUNTS", help="Machine counts: 1,2,4..512 doubles from 4 on; 8..64+8 adds 8 each time."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="COUNTS", help="GPU counts in one machine, instead of --nodes: 1,2,4,8, or 1..8, which doubles."
        ),
    ] = None,
    fabric: Fabric = None,
    batch: Annotated[str | None, typer.Option(metavar="COUNT", help="Samples per GPU (weak scaling).")] = None,
    global_batch: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Samples on all GPUs together (strong scaling).")
    ] = None,
    micro_batches: Annotated[
        str, typer.Option(metavar="COUNT", help="Micro-batches per step, of --batch samples each.")
    ] = "1",
    micro_batch: Annotated[
        str | None, typer.Option(metavar="SAMPLES", help="Samples per micro-batch and replica; with --global-batch.")
    ] = None,
    parallel: Annotated[
        str | None, typer.Option(metavar="LAYOUT", help="dp, fsdp, or degrees: tp=8,pp=4, as for simulate.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(autocompletion=complete.strategies, metavar="NAME", help="Exchange strategy. Default: nccl."),
    ] = None,
    overlap: Annotated[str, typer.Option(metavar="HOW", help="bucket:25MiB, or none.")] = "bucket:25MiB",
    precision: Precision = None,
    optimizer: Optimizer = None,
    seq_len: SeqLen = None,
    image: Image = None,
    sizes: Sizes = None,
    compiled: Compiled = False,
    fused_optimizer: Fused = False,
    recompute: Recompute = False,
    recompute_attention: RecomputeAttention = False,
    recompute_operators: RecomputeOperators = False,
    recompute_parts: RecomputeParts = None,
    recompute_blocks: RecomputeBlocks = None,
    framework: Framework = "pytorch",
    nccl: Nccl = None,
    calibration: Calibration = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Plot the curve: .svg, .png or .pdf.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Plot how a training step scales, where the curve bends, and why.

    simulate scale --topology dgx-h100 --nodes 1,2,4..512 --workload llama3-8b --batch 2 --parallel fsdp
    """
    given = locals()
    from simulator.cli.scale_command import run_scale

    given["parallel"] = () if parallel is None else (parallel,)
    nodes, gpus = given.pop("nodes"), given.pop("gpus")
    run_scale(_written(given), nodes, gpus)


def _written(given: dict[str, object]) -> Written:
    """Return the options as those of ``simulate``."""
    del given["debug"]  # read from the arguments when errors are shown
    given["sizes"] = tuple(given["sizes"] or ())  # type: ignore[arg-type]
    return Written(**given)  # type: ignore[arg-type]
