"""The commands beside the simulation, with their options: searches, scenarios and lists.

Their code is imported only when used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from simulator.cli.option import EPILOG, SETTINGS, Said, argument, option, switch, with_options
from simulator.cli.written import OPTIONS, CommandOptions, shell_command, written_of

app = typer.Typer(**SETTINGS)

_OF_NETWORK = ("precision", "optimizer", "seq_len", "image", "sizes", "compiled", "fused_optimizer")
_LAST = (
    "expandable_segments",
    "gradient_as_bucket_view",
    "framework",
    "nccl",
    "algorithm",
    "protocol",
    "nvls",
    "calibration",
)
_TOP = "10"
_SEARCH: dict[str, Said] = {
    "parallel": option("LAYOUT", "Fixed degrees, for example tp=8,zero=1; all others are searched."),
    "recompute": option("HOW", "none, selective (attention) or full (blocks). Default: try all three."),
    "top": option("COUNT", "Number of layouts to show.", default=_TOP),
    "jobs": option("COUNT", "Processes. Default: one per core."),
    "dask": option("ADDRESS", "Run on this Dask cluster, for example tcp://host:8786."),
    "resume": option("FILE", "Save progress in this file, and resume from it."),
    "emit": option("NAME", "Also print each layout as a launch line of megatron, torchtitan, deepspeed or accelerate."),
}
_SIMULATED: dict[str, Said] = {
    "topology": "A machine: a YAML file or a built-in name (simulate machines).",
    "workload": "A network: gpt3-18b, layers.yaml, torch:... Default: resnet50.",
    "precision": "As for simulate.",
}


@app.command(epilog=EPILOG)
@with_options(
    OPTIONS,
    *("topology", "workload", "nodes", "gpus", "fabric", "global_batch", "micro_batch", *_SEARCH),
    *(*_OF_NETWORK, *_LAST, "json", "report", "quiet", "debug"),
    **_SIMULATED,
    gpus="The first four (4), a range (0-4) or a list (0,2,5). Default: all.",
    global_batch="Samples per step on all GPUs together; required.",
    micro_batch="Samples per micro-batch and replica. Default: try powers of two, a replica's share, and its halves.",
    **_SEARCH,
)
def best(**given: Any) -> Any:
    """Find the fastest layout of a training step that fits into memory.

    Estimates every degree of parallelism, micro-batch, sharding and recomputation, and simulates the fastest.

    simulate best --topology dgx-a100-80gb --nodes 8 --workload gpt3-18b --global-batch 1024
    """
    from simulator.cli.best_command import answer_best
    from simulator.cli.output import Asked

    wanted = {name: given.pop(name) for name in ("micro_batch", *_SEARCH)}
    asked = written_of(given)
    said = {name: value for name, value in wanted.items() if name != "top" or value != _TOP}
    again = shell_command(asked, ["best"], **said)
    return Asked(asked, lambda written: answer_best(written, **wanted), command=again)


_RUN: dict[str, Said] = {
    "tokens": option("COUNT", "Tokens of the run: 15T, 300B."),
    "samples": option("COUNT", "Samples of the run, where the network has no tokens: 90M."),
    "gpu_mtbf": option("TIME", "Mean time between failures of one GPU, instead of --mtbf: 50000h."),
    "storage": option("RATE", "Rate at which storage takes a checkpoint from all nodes, for example 100GB/s."),
    "async_checkpoints": switch("Train on while a checkpoint is written; training stops to copy it to the hosts."),
    "warmup_time": option("TIME", "Time that each start takes besides: compilation, autotuning, first steps."),
    "evaluate_every": option("STEPS", "Steps between evaluations."),
    "evaluate_samples": option("COUNT", "Samples of an evaluation."),
    "gpu_hour": option("PRICE", "Price of a GPU for an hour: 2.5 USD. Default: that of the machine's file."),
}


@app.command("run", epilog=EPILOG)
@with_options(
    OPTIONS,
    *("topology", "workload", "launch", "nodes", "gpus", "fabric", "batch", "global_batch"),
    *("micro_batches", "micro_batch", "parallel", "strategy", "overlap", "straggler", *_OF_NETWORK),
    *("recompute", "recompute_attention", "recompute_operators", "recompute_parts", "recompute_blocks"),
    *("reduce_fp32", "offload", "offload_to", "round_robin_gradients", *_LAST),
    *("mtbf", "checkpoint_every", "checkpoint_time", "restart_time", *_RUN, "json", "quiet", "debug"),
    **_SIMULATED,
    parallel=option("LAYOUT", "dp, fsdp, or degrees: tp=8,pp=4, as for simulate."),
    strategy="Exchange strategy. Default: nccl.",
    mtbf="Mean time between failures of the whole run.",
    checkpoint_every="Steps between checkpoints. Default with failures: the best interval.",
    checkpoint_time="Time to write a checkpoint. Default: that of --storage, or of the first disk of each node.",
    restart_time="Time from a failure to the first step: to find it, replace what failed, and load. Default: none.",
    **_RUN,
)
def whole_run(**given: Any) -> Any:
    """Tell how long a whole training run takes, what of it trains, and what it costs.

    simulate run --topology dgx-h100 --nodes 2 --workload llama2-7b --batch 1 --parallel fsdp --tokens 1T --mtbf 300h
    """
    from simulator.cli.run_command import ask_run

    own = {name: given.pop(name) for name in _RUN}
    layout = given.pop("parallel")
    return ask_run(written_of({**given, "parallel": layout and (layout,)}), own)


@app.command(epilog=EPILOG)
@with_options(
    OPTIONS,
    *("topology", "workload", "nodes", "gpus", "fabric", "batch", "global_batch", "micro_batches", "micro_batch"),
    *("parallel", "strategy", "overlap", *_OF_NETWORK),
    *("recompute", "recompute_attention", "recompute_operators", "recompute_parts", "recompute_blocks"),
    *("offload", "offload_to", "round_robin_gradients", *_LAST, "plot", "json", "report", "quiet", "debug"),
    **_SIMULATED,
    batch="Samples per GPU (weak scaling).",
    global_batch="Samples on all GPUs together (strong scaling).",
    strategy="Exchange strategy. Default: nccl.",
    plot="Plot the curve: .svg, .png or .pdf.",
    nodes=option("COUNTS", "Machine counts: 1,2,4..512 doubles from 4 on; 8..64+8 adds 8 each time."),
    gpus=option("COUNTS", "GPU counts in one machine, instead of --nodes: 1,2,4,8, or 1..8, which doubles."),
    parallel=option("LAYOUT", "dp, fsdp, or degrees: tp=8,pp=4, as for simulate."),
)
def scale(**given: Any) -> Any:
    """Plot how a training step scales, where the curve bends, and why.

    simulate scale --topology dgx-h100 --nodes 1,2,4..512 --workload llama3-8b --batch 2 --parallel fsdp
    """
    from simulator.cli.scale_command import ask_scale

    nodes, gpus, layout = (given.pop(name) for name in ("nodes", "gpus", "parallel"))
    return ask_scale(written_of({**given, "parallel": layout and (layout,)}), nodes, gpus)


_OVER: dict[str, Said] = {
    "over": option("OPTION=VALUES", "An option and its values: batch=1,2,4; repeatable.", default=()),
    "sort": option("FIGURE", "Best first by this figure: time_s, tokens_per_s, price_per_million_tokens, ..."),
    "csv": option("FILE", "Write a row for each question as CSV."),
    **{name: _SEARCH[name] for name in ("jobs", "dask", "resume")},
}


@app.command("sweep", epilog=EPILOG)
@with_options(
    OPTIONS,
    *(name for name, each in OPTIONS.items() if each[2].title not in ("Output", "Launch line")),
    *(*_OVER, "json", "report", "quiet", "debug"),
    **_OVER,
)
def sweep_over(**given: Any) -> Any:
    """Answer one question at every combination of values of some options.

    simulate sweep --topology dgx-h100 --workload llama3-8b --parallel fsdp --over batch=1,2,4 --over recompute=yes,no

    Values that hold commas are separated by semicolons: --over 'parallel=dp;tp=2,dp=4'.
    """
    from simulator.cli.output import Asked
    from simulator.cli.sweep_command import answer_sweep

    own = {name: given.pop(name) for name in _OVER}
    own["over"] = tuple(own["over"] or ())
    written = written_of(given)
    again = shell_command(written, ["sweep"], **{name: own[name] for name in ("over", "sort", "csv", "resume")})
    return Asked(written, lambda written: answer_sweep(written, **own), command=again)


@app.command(epilog=EPILOG.replace("the run failed", "a run failed"))
@with_options(
    OPTIONS,
    *("name", "list", "show", "copy", "json", "trace", "plot", "report", "trust_code", "quiet", "debug"),
    name=argument("NAME", "A built-in scenario, or your own YAML file.", complete="scenarios"),
    list=switch("List the built-in scenarios by chapter."),
    show=switch("Print the scenario file."),
    copy=option("DIR", "Copy the scenario and its files to DIR, to edit them."),
    json="Print the answers as JSON.",
    trace="Write the timeline of the main run (Chrome trace).",
    plot="Plot it (.svg, .png or .pdf).",
    trust_code="Let the runs of a file write files, run code and open connections.",
)
def scenario(**given: Any) -> Any:
    """Run a scenario and compare each answer with its expected value.

    simulate scenario --list

    simulate scenario one-process-eight-gpus

    simulate scenario ./mine.yaml --plot mine.svg
    """
    from simulator.cli.scenario_command import ask_scenario

    return ask_scenario(lists=given.pop("list"), **given)


def _listing(*names: str, **said: Said) -> Callable[[Callable[[], None]], None]:
    """Return a decorator that makes a command of a list, which it names and describes, with the options *names*."""
    said["words"] = argument("WORD", "Words in the name or description.", default=())
    said["json"] = "Print one JSON document with all figures."

    def decorate(function: Callable[[], None]) -> None:
        def listed(**given: Any) -> Any:
            from simulator.cli import listing
            from simulator.cli.output import Asked

            find, words = getattr(listing, f"list_{function.__name__}"), given.pop("words") or ()
            return Asked(CommandOptions(json=given.pop("json")), lambda _: find(words, **given))

        command = with_options(OPTIONS, "words", *names, "json", "debug", **said)(listed)
        app.command(function.__name__, help=function.__doc__)(command)

    return decorate


@_listing(
    *("gpu", "gpus", "nodes"),
    gpu=option("MODEL", "Machines with this GPU: h100, v100-sxm2.", complete="gpu_models"),
    gpus=option("COUNT", "Machines with this many GPUs in total."),
    nodes=option("COUNT", "Machines with this many nodes."),
)
def machines() -> None:
    """List the built-in machines that --topology takes by name.

    simulate machines --gpu h100 --gpus 8
    """


@_listing("sample", sample=option("KIND", "Networks for images, sequences, ...", complete="sample_kinds"))
def networks() -> None:
    """List the built-in networks that --workload takes, with the sizes that --set changes.

    simulate networks llama
    """


@_listing("kind", kind=option("KIND", "gpu, cpu, switch, nic, storage, link.", complete="part_kinds"))
def parts() -> None:
    """List the built-in parts of machines.

    simulate parts --kind gpu volta
    """


@_listing()
def strategies() -> None:
    """List the exchange strategies.

    simulate strategies ring
    """
