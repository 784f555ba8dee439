"""Tables of measured steps, on one device or several: a row's question, read without its time (docs/scoring.md)."""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, get_args

from simulator.errors import InputError, nearest, one_line
from simulator.questions import options as known
from simulator.questions.layout import REPLICAS, SCHEDULES, Layout, Schedule
from simulator.questions.single import LaunchQuestion
from simulator.questions.step import BUCKET_BYTES, Offload, StepQuestion, accumulating
from simulator.questions.where import CPU_LIBRARIES, MONTH_NEEDED, CpuLibrary, Software, month_of
from simulator.topology.parts import CpuPart
from simulator.units import whole_number
from simulator.workload.find import is_described
from simulator.workload.network import family_of
from simulator.workload.variants import LORA_LAYERS, LORA_WEIGHTS, LOSS_WAYS
from simulator.workload.zoo import ZooEntry
from simulator.workload.zoo.registry import build_network, find_entry, why_not_built
from validate.kinds.kind import ALL_COLUMNS, CELLS, WORDS, Cell, RowQuestion, Timed, kind_of
from validate.kinds.moves import forced_algorithm
from validate.kinds.timing import attention_library, from_start_s, with_other_s
from validate.tables.cells import NotScored, nccl_of, number, one_of, quantity, whole_cell, whole_or_none
from validate.tables.names import RowNames

_MAX_SIZE = 1e8
_whole = partial(whole_or_none, most=_MAX_SIZE)
_PHASES: Mapping[str, known.Mode] = {"": "train", "fwd": "forward", "bwd": "backward", **{m: m for m in known.MODES}}
_ISSUES = ("", "eager", "graph", "graph-blocks", "compile", "compile+graph")
_OVERLAPS = {"": BUCKET_BYTES, "none": 0.0, "tensor": 1.0}  # bucket size in bytes
_STEPS: Mapping[str, Any] = WORDS["steps"]
_WORDS = {"lora_layers": LORA_LAYERS, "lora_weights": LORA_WEIGHTS, "cross_entropy": LOSS_WAYS}  # of a network
_IF_IT_HAS_THEM = ("gelu", "norms")  # words of a network that others do without
_READ_EACH = "each step"  # the host reads back the loss of each step


def read_step(cell: Cell, names: RowNames) -> RowQuestion:
    """Return a row's question, *cell* giving text of the columns that it may see; raises NotScored if not modelled."""
    ranks, nodes, layout = ranks_and_layout(cell)
    name = cell("network") or cell("model")
    if not name:
        raise NotScored("model missing")
    written_out = is_described(name)
    entry = None if written_out else _entry(name, cell)
    replicas = ranks // layout.model_ranks
    micro_batches = _micro_batches(cell, replicas)
    options = _options(cell)
    where = names.machines.where(cell("machine"), nodes, ranks // nodes, cell("fabric_part"))
    machine = names.machine(where)
    if ranks > 1 and not machine.gpus:
        raise NotScored(f"{ranks} ranks share the processors of a machine without GPUs, which is not modelled")
    alone = cell("strategy") == ALONE
    gpus = names.gpus(where, nodes, range(ranks // nodes)) if machine.gpus else None
    gpus = gpus[:1] if gpus and alone else gpus
    threads = CELLS["cpu threads among"].search(cell("schedule"))
    exchange = _exchange(cell, layout, strategy="nccl" if alone else cell("strategy") or "nccl")
    exchanges = (gpus is None or len(gpus) > 1) and (options.mode != "forward" or not layout.has_replicas)
    said = cell("offload")
    offload, *how = said.split(", ")
    if not {*how} <= {"round robin", "bound"}:
        raise NotScored(f"offload '{one_line(said, 40)}' is not modelled; after the first word: round robin, bound")
    workload = names.file(name) if written_out else name
    batch = _whole(cell, "micro_batch") or _whole(cell, "batch_per_gpu")
    if batch is None:
        parts, every = micro_batches * replicas, _whole(cell, "global_batch")
        if every is None or every % parts:
            raise NotScored("batch_per_gpu missing")
        batch = every // parts
    question = StepQuestion(
        where=where,
        workload=workload,
        batch=batch,
        sizes=() if entry is None else _sizes(cell, entry, options),
        options=options,
        micro_batches=micro_batches,
        gpus=gpus,
        offload=one_of(offload or "none", get_args(Offload), f"offload '{one_line(offload, 20)}' is not modelled"),
        round_robin="round robin" in how,
        bind_cores="bound" in how,
        threads=int(threads[1]) if threads and not machine.gpus else None,
        software=_software(cell, names.capability(where), on_gpu=bool(machine.gpus)),
        **(exchange if exchanges else {}),  # what exchanges nothing does so whatever its row says
    )
    accumulate, first_steps = cell("accumulate"), cell("first_steps")
    refusal = f"accumulate '{one_line(accumulate, 20)}' is not modelled; {', '.join(known.ACCUMULATIONS)}"
    question = accumulating(question, one_of(accumulate, known.ACCUMULATIONS, refusal) if accumulate else None)
    if cell("sync") == _READ_EACH:
        reading = LaunchQuestion(where=where, timed="host", call="read")
        return RowQuestion(question, timing=Timed(with_other_s, (1.0, reading)))
    if not first_steps:
        return RowQuestion(question)
    counted, _, ran = first_steps.partition(" of ")  # the time holds the start of the run
    steps = whole_cell("first_steps", counted, _MAX_SIZE)
    of = whole_cell("first_steps", ran, _MAX_SIZE) if ran else steps
    return RowQuestion(question, timing=Timed(from_start_s, (steps, of, ranks)))


def _exchange(cell: Cell, layout: Layout, strategy: str) -> dict[str, Any]:
    algorithm, other = forced_algorithm(cell("algorithm_forced"))
    if other or (algorithm and strategy != "nccl" and not layout.divides_network):
        raise NotScored(f"forced algorithm '{algorithm or other}' is not what {one_line(strategy, 40)} does")
    exchange: dict[str, Any] = {
        "layout": layout,
        "strategy": strategy,
        "algorithm": algorithm,
        "sums_in_fp32": "fp32" in cell("sync") and "units in fp32" not in cell("sync"),
        "gathers_in_fp32": "units in fp32" in cell("sync"),
        "sums_whole": "summed whole" in cell("sync"),
        "flat_parameters": layout.zero == 3 and cell("flat_parameters") == "1",
        "gathers_again": "gathered again" in cell("sync") + cell("fsdp_prefetch"),
        "prefetches": not cell("fsdp_prefetch").startswith("0"),
    }
    if layout.zero != 3:  # whole shards are gathered one unit ahead
        overlap = cell("overlap")
        exchange["bucket_bytes"] = _OVERLAPS[overlap] if overlap in _OVERLAPS else quantity("overlap", overlap, "size")
    return exchange


def _software(cell: Cell, capability: str | None, *, on_gpu: bool) -> Software:
    """Return the versions that ran; of CPU kernels most frameworks' of the row's era if not given; raises NotScored."""
    library, clock = cell("cpu_library"), cell("gpu_clock")
    month = month_of(cell("libraries"))
    nccl = nccl_of(cell("software"), capability)
    of_era: CpuLibrary = "blas" if cell("era") == "before 2019" else "onednn"
    refusal = f"cpu_library '{one_line(library, 20)}': {nearest(library, CPU_LIBRARIES)}"
    cpu_library = one_of(library, CPU_LIBRARIES, refusal) if library else of_era
    gpu_clock_Hz = quantity("gpu_clock", clock, "frequency") if clock and on_gpu else 0.0
    if cell("libraries") and month is None:
        raise NotScored(f"libraries '{one_line(cell('libraries'), 20)}': {MONTH_NEEDED}")
    return Software(nccl=nccl, cpu_library=cpu_library, gpu_clock_Hz=gpu_clock_Hz, libraries=month)


def _entry(name: str, cell: Cell) -> ZooEntry:
    try:
        entry = find_entry(name)
    except InputError:
        why = why_not_built(name)
        raise NotScored(f"no network '{one_line(name, 40)}' in the zoo{f': {why}' if why else ''}") from None
    if entry.sample == "sequences" and not cell("seq_len") and not entry.length_known:
        raise NotScored("seq_len missing, and sequences are of any length")
    return entry


def _micro_batches(cell: Cell, replicas: int) -> int:
    said, each, every = (_whole(cell, column) for column in ("grad_accum", "micro_batch", "global_batch"))
    if said is None and each is None and (_whole(cell, "pp") or 1) > 1:
        raise NotScored("micro_batch missing, of a pipeline")
    if said is not None or each is None or every is None:
        return said or 1
    if every % (each * replicas):
        raise NotScored(f"global_batch {every} is no multiple of {replicas} replicas x micro_batch {each}")
    return every // (each * replicas)


def _sizes(cell: Cell, entry: ZooEntry, options: known.StepOptions) -> tuple[tuple[str, int | str], ...]:
    """Return the network's sizes from a row, its attention kernels, and whether it ends with a loss (1) or not (0)."""
    sizes: dict[str, int | str] = {}
    for column in _STEPS["sizes"]:
        value = _whole(cell, column)
        if value is not None and (column != "predicted" or "predicted" in entry.defaults):
            sizes[_STEPS["called"].get(column, column)] = value
    for column, allowed in _WORDS.items():
        if cell(column):
            refusal = f"{column} '{one_line(cell(column), 20)}' is not modelled; {', '.join(allowed)}"
            sizes[column] = one_of(cell(column), allowed, refusal)
    attention = cell("attention")
    by_library = {"native": "fused-native", "flash4": "fused-fourth"}.get(attention_library(cell("software")))
    if (attention or entry.defaults.get("attention")) == "fused" and by_library is not None:
        attention = by_library
    if attention:
        sizes["attention"] = attention
    for column in _IF_IT_HAS_THEM:
        if cell(column) and entry.defaults.get(column) not in (None, cell(column)):
            sizes[column] = cell(column)
    loss = cell("loss") or ("1" if entry.sample == "sequences" and options.mode == "train" else "0")
    sizes["loss"] = int(loss == "1")
    return tuple(sizes.items())


def _options(cell: Cell) -> known.StepOptions:
    mode = _PHASES.get(cell("phase"))
    if mode is None:
        raise NotScored(f"no such phase: {one_line(cell('phase'), 20)}")
    named = cell("policy") or cell("dtype") or "fp32"
    refusal = f"no such dtype: {one_line(cell('policy') or cell('dtype'), 20)}"
    policy: known.Policy = one_of(named, known.POLICIES, refusal)
    if cell("dtype") in ("fp64", "torch") and not cell("policy"):
        raise NotScored(refusal)
    recompute, parts, blocks = _recompute(cell)
    issue = cell("issue")
    if issue not in _ISSUES:
        raise NotScored(f"issue '{one_line(issue, 20)}' is not modelled; {', '.join(filter(None, _ISSUES))}")
    optimizer: known.Optimizer = "adam" if cell("seq_len") else "momentum"
    if text := cell("optimizer").lower():
        refusal = f"no optimizer '{one_line(text, 20)}'; {nearest(text, known.OPTIMIZERS)}"
        optimizer = one_of(text, known.OPTIMIZERS, refusal)
    framework: known.Framework = next((name for name in known.FRAMEWORKS if name == cell("modules")), "pytorch")
    return known.StepOptions(
        mode=mode,
        precision=policy,
        optimizer=optimizer,
        compiled=issue.startswith("compile") or cell("compiled") == "1",
        cuda_graph=issue.endswith("graph"),
        cuda_graph_blocks=issue == "graph-blocks",
        recompute=recompute,
        recompute_parts=parts,
        recompute_blocks=blocks,
        channels_last=cell("channels_last") == "1",
        fused_optimizer=cell("fused_optimizer") == "1",
        launch_blocking=cell("launch_blocking") == "1",
        delayed_scales=cell("delayed_scales") == "1",
        framework="adaptdl" if mode == "train" and "adaptdl" in cell("software").lower() else framework,
    )


def _recompute(cell: Cell) -> tuple[known.Recompute, tuple[known.RecomputedPart, ...], int | None]:
    said = cell("recompute").split(" ")[0] or "none"  # details follow the first word
    refusal = f"recompute '{one_line(said, 20)}' is not modelled; {', '.join(known.RECOMPUTES)} are"
    how: known.Recompute = one_of(said, known.RECOMPUTES, refusal)
    named, blocks = cell("recompute_parts").split(), cell("recompute_blocks")
    parts = tuple(part for part in known.RECOMPUTED_PARTS if part in named)
    if len(parts) != len(set(named)) or (named and how != "selective"):
        told = f"with selective, of {', '.join(known.RECOMPUTED_PARTS)}"
        raise NotScored(f"recompute_parts '{one_line(' '.join(named), 40)}': {told}")
    if blocks and how == "none":
        raise NotScored("recompute_blocks without recompute")
    return how, parts or known.StepOptions().recompute_parts, whole_cell("recompute_blocks", blocks) if blocks else None


def configuration(cell: Cell) -> tuple[str, ...]:
    """Return the cells shared by rows that differ only in their framework."""
    return (cell("n_gpus") or "1", *map(cell, _STEPS["configuration"]))


def _labels(cell: Cell, names: RowNames) -> Mapping[str, str]:
    """Return family, era, device, processor and ranks: one device, several, or several that divide the network."""
    ranks = "one" if cell("n_gpus") in ("", "0", "1") or cell("strategy") == ALONE else "several"
    if ranks == "several" and any(cell(axis) not in ("", "1", "1.0") for axis in ("tp", "pp", "cp", "ep")):
        ranks = "divided"
    device, processor = "", ""  # the part that computes, where the machine is known
    with suppress(NotScored):
        machine = names.machine(names.machines.where(cell("machine"), 1))
        cpus = [node.part_name for node in machine.nodes if isinstance(node.part, CpuPart)]
        if machine.gpus:
            device, processor = machine.nodes[machine.gpus[0]].part_name, "GPU"
        elif cpus:
            device, processor = cpus[0], "CPU"
    family = _family(cell("network") or cell("model"))
    labels = {"family": family, "device": device, "processor": processor, "ranks": ranks}
    if ranks != "one":
        labels["gpus"] = cell("n_gpus")
    if cell("software"):
        labels["era"] = cell("era") or "since 2019"
    return labels


@lru_cache(maxsize=1024)
def _family(model: str) -> str:
    try:
        return family_of(build_network(model, batch=1)) or "other"
    except InputError:
        return ""


ALONE = "none"  # the ``strategy`` of replicas that exchange nothing
_count = partial(whole_or_none, most=10**7)


def ranks_and_layout(cell: Cell) -> tuple[int, int, Layout]:
    """Return a step's GPUs (a CPU: one), nodes and layout; raises NotScored where they contradict or lack one."""
    if cell("n_gpus") == "0":
        return 1, 1, REPLICAS
    ranks, nodes = (_count(cell, column) or 1 for column in ("n_gpus", "n_nodes"))
    if ranks == nodes == 1:
        return 1, 1, REPLICAS
    if ranks % nodes:
        raise NotScored("n_gpus is no multiple of n_nodes")
    layout = _layout(cell)
    named = layout.divides_network or layout.zero or cell("strategy")
    if cell("strategy") == ALONE and (layout.divides_network or layout.zero):
        raise NotScored(f"strategy '{ALONE}': shards and parts of a network exchange something")
    if not named and not CELLS["all-reduce"].match(cell("sync")):
        way = one_line(cell("sync"), 30)
        raise NotScored(f"more than one GPU, exchanged by '{way}': ddp, horovod, nccl are scored, or a strategy")
    try:
        known = layout.on(ranks)
    except InputError as error:
        raise NotScored(f"n_gpus {ranks}: {error.spelt('value')}") from None
    dp = _count(cell, "dp")
    if dp is not None and dp != known.dp:
        raise NotScored(f"tp x pp x cp x dp is {layout.model_ranks * dp}, and n_gpus {ranks}")
    return ranks, nodes, layout


def _layout(cell: Cell) -> Layout:
    tp, pp, cp, ep, vp = (_count(cell, column) or 1 for column in ("tp", "pp", "cp", "ep", "vp"))
    zero = 3 if cell("fsdp") in ("1", "1.0") else _count(cell, "zero") or 0
    words = re.split(r"[;, ]+", cell("schedule").lower())
    schedule: Schedule = next((name for name in SCHEDULES if name in words), "1f1b")
    sp = cell("sp") == "1" and tp > 1
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=_count(cell, "etp"),
        flex=cell("flex") == "1" and ep > 1,
        ep_overlap=cell("ep_overlap") == "1" and ep > 1,
        vp=vp if pp > 1 else 1,
        blocks=_blocks(cell("blocks")) if pp > 1 else (),
        sp=sp,
        tp_overlap=cell("tp_overlap") == "1" and sp,
        zero=zero,
        shards=_count(cell, "shards") if zero else None,
        schedule=schedule if vp == 1 else "1f1b",
    )


def _blocks(text: str) -> tuple[int, ...]:
    counts = [count for each in text.split("-") if (count := whole_number(each)) is not None] if text else []
    if text and len(counts) <= text.count("-"):
        raise NotScored(f"blocks '{one_line(text, 30)}': those of each part of the pipeline, as 8-10-10-4")
    return tuple(counts)


_SAMPLES = ("images", "sequences", "samples")


def step_measured_s(cell: Cell) -> float:
    """Return ``step_time_s``, or the time in seconds that a published throughput implies; raises NotScored.

    It counts samples, or units such as tokens, ``units_each`` a sample; with ``epoch_samples``, all of an epoch.
    """

    def of(column: str, default: str = "") -> float:
        return number(column, cell(column) or default)

    if cell("step_time_s"):
        return of("step_time_s")
    if not cell("throughput"):
        raise NotScored("no time, only memory" if any(map(cell, ALL_COLUMNS)) else "step_time_s missing")
    rate = CELLS["rate"].fullmatch(cell("throughput_unit"))
    if rate is None:
        raise NotScored(f"step_time_s missing, and what {one_line(cell('throughput_unit'), 30)} counts is not said")
    units, per_gpu = rate.groups()
    each = 1.0
    if units not in _SAMPLES:
        column = "seq_len" if units == "tokens" and not cell("units_each") else "units_each"
        if not cell(column):
            raise NotScored(f"step_time_s missing, and how many {one_line(units, 20)} a sample has ({column})")
        each = of(column)
    gpus = of("n_gpus", "1") if per_gpu else 1.0
    a_rank = cell("micro_batch") or cell("batch_per_gpu")
    if cell("global_batch") or not a_rank:
        samples = of("global_batch")
    else:  # over all GPUs and micro-batches
        samples = number("batch_per_gpu", a_rank)
        for column in ("n_gpus", "grad_accum"):
            samples *= of(column) if cell(column) not in ("", "0") else 1.0  # 0 GPUs: a CPU
        for column in ("tp", "pp", "cp"):
            samples /= of(column, "1")
    if cell("epoch_samples"):  # a step has its share of those that the epoch leaves out
        epoch = of("epoch_samples")
        if epoch < samples:
            raise NotScored(f"an epoch of {epoch:,.0f} samples has no batch of {samples:,.0f}")
        samples = epoch / (epoch // samples)
    return samples * each / (of("throughput") * gpus)


STEPS = kind_of("training", read=read_step, measured_s=lambda cell, _names: step_measured_s(cell), labelled=_labels)
