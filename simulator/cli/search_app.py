"""The options of ``simulate best`` and ``simulate scale``.  Their code is imported only when used."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simulator.cli.option import own, with_options
from simulator.cli.written import OPTIONS, written_of

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

_EPILOG = (
    "Results go to standard output, everything else to standard error. "
    "Exit codes: 0 ok, 1 the run failed, 2 usage or input, 4 an optional dependency is missing."
)

Text = str | None
_NETWORK = ("precision", "optimizer", "seq_len", "image", "sizes", "compiled", "fused_optimizer")
_LAST = ("framework", "nccl", "calibration")


@app.callback()
def searches() -> None:
    """Search for the best layout of a step, or plot its scaling."""


@app.command(epilog=_EPILOG)
@with_options(
    OPTIONS,
    *("topology", "workload", "nodes", "gpus", "fabric", "global_batch", "micro_batch", "parallel", "recompute"),
    *("top", "jobs", "dask", "resume", *_NETWORK, *_LAST, "json", "quiet", "debug"),
    topology="A machine: a YAML file or a built-in name (simulate machines).",
    workload="A network: gpt3-18b, layers.yaml, torch:... Default: resnet50.",
    gpus="The first four (4), a range (0-4) or a list (0,2,5). Default: all.",
    global_batch="Samples per step on all GPUs together; required.",
    micro_batch="Samples per micro-batch and replica. Default: try powers of two.",
    precision="As for simulate.",
)
def best(
    parallel: Annotated[
        str | None, own("LAYOUT", "Fixed degrees, for example tp=8,zero=1; all others are searched.")
    ] = None,
    recompute: Annotated[
        str | None, own("HOW", "none, selective (attention) or full (blocks). Default: try all three.")
    ] = None,
    top: Annotated[str, own("COUNT", "Number of layouts to show.")] = "10",
    jobs: Annotated[Text, own("COUNT", "Processes. Default: one per core.")] = None,
    dask: Annotated[Text, own("ADDRESS", "Run on this Dask cluster, for example tcp://host:8786.")] = None,
    resume: Annotated[Text, own("FILE", "Save progress in this file, and resume from it.")] = None,
    **given: Any,
) -> Any:
    """Find the fastest layout of a training step that fits into memory.

    Estimates every degree of parallelism, micro-batch, sharding and recomputation, and simulates the fastest.

    simulate best --topology dgx-a100-80gb --nodes 8 --workload gpt3-18b --global-batch 1024
    """
    from simulator.cli.best_command import SearchOptions, answer_best
    from simulator.cli.output import Asked

    del given["debug"]  # read from the arguments when errors are shown
    only = {"parallel": parallel, "micro_batch": given.pop("micro_batch"), "recompute": recompute}
    wanted = SearchOptions(**only, top=top, jobs=jobs, dask=dask, resume=resume)
    return Asked(written_of(given), lambda written: answer_best(written, wanted))


@app.command(epilog=_EPILOG)
@with_options(
    OPTIONS,
    *("topology", "workload", "nodes", "gpus", "fabric", "batch", "global_batch", "micro_batches", "micro_batch"),
    *("parallel", "strategy", "overlap", *_NETWORK),
    *("recompute", "recompute_attention", "recompute_operators", "recompute_parts", "recompute_blocks"),
    *(*_LAST, "plot", "json", "quiet", "debug"),
    topology="A machine: a YAML file or a built-in name (simulate machines).",
    workload="A network: gpt3-18b, layers.yaml, torch:... Default: resnet50.",
    batch="Samples per GPU (weak scaling).",
    global_batch="Samples on all GPUs together (strong scaling).",
    strategy="Exchange strategy. Default: nccl.",
    precision="As for simulate.",
    plot="Plot the curve: .svg, .png or .pdf.",
    nodes=("COUNTS", "Machine counts: 1,2,4..512 doubles from 4 on; 8..64+8 adds 8 each time."),
    gpus=("COUNTS", "GPU counts in one machine, instead of --nodes: 1,2,4,8, or 1..8, which doubles."),
)
def scale(
    parallel: Annotated[Text, own("LAYOUT", "dp, fsdp, or degrees: tp=8,pp=4, as for simulate.")] = None,
    **given: Any,
) -> Any:
    """Plot how a training step scales, where the curve bends, and why.

    simulate scale --topology dgx-h100 --nodes 1,2,4..512 --workload llama3-8b --batch 2 --parallel fsdp
    """
    from simulator.cli.scale_command import ask_scale

    del given["debug"]  # read from the arguments when errors are shown
    nodes, gpus = given.pop("nodes"), given.pop("gpus")
    return ask_scale(written_of({**given, "parallel": parallel and (parallel,)}), nodes, gpus)
