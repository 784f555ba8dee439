"""What a row of a table of measured steps asks: the network, its sizes and how it is run; never how long it took.

The columns are those of ``training.csv`` (docs/scoring.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.devices.cpu.cpu import CpuLibrary
from simulator.errors import InputError, nearest, one_line
from simulator.step.options import OPTIMIZERS, Mode, Optimizer, Policy, StepOptions
from simulator.workload.zoo.registry import find_entry
from validate.operators.serving import attention_library
from validate.score.query import NotScored, number
from validate.training.spread import Spread, read_spread

__all__ = ["COLUMNS_ASKED", "TrainingQuery", "is_early", "read_query"]

# What read_query may look at.
COLUMNS_ASKED = (
    *(
        "machine",
        "n_nodes",
        "n_gpus",
        "framework",
        "software",
        "model",
        "phase",
        "dtype",
        "batch_per_gpu",
        "global_batch",
    ),
    *("micro_batch", "grad_accum", "seq_len", "hidden", "heads", "layers", "vocab", "image", "recompute"),
    *("optimizer", "schedule", "dataset", "issue", "tp", "pp", "cp", "ep", "fsdp", "sync"),
)
_MAX_SIZE = 1e7
_ATTENTIONS = {
    "eager attention": "eager",
    "fused attention": "fused",
    "flash attention 1": "fused-first",
    "flash attention 3": "fused-native",
}
# llm-foundry before v0.4 (October 2023) took Triton's FlashAttention 1: attn_impl of its submit_benchmarks.py.
_FIRST_FLASH = "llm-foundry"
_MODES: dict[str, Mode] = {"": "train", "train": "train", "inference": "inference", "fwd": "forward", "bwd": "backward"}
_POLICIES: dict[str, Policy] = {"": "fp32", "fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16"}
_POLICIES |= {"amp-fp16": "amp-fp16", "amp-bf16": "amp-bf16"}
_POLICIES |= {"graph-fp16": "graph-fp16", "graph-bf16": "graph-bf16"}
_POLICIES |= {"master-fp16": "master-fp16", "master-bf16": "master-bf16"}
_ISSUES = ("", "eager", "graph", "compile")
_AUTOCAST: dict[str, Policy] = {"fp16": "amp-fp16", "bf16": "amp-bf16"}
_GRAPH: dict[str, Policy] = {"fp16": "graph-fp16", "bf16": "graph-bf16"}
_MASTERS: dict[str, Policy] = {"fp16": "master-fp16", "bf16": "master-bf16"}
# Frameworks whose half precision keeps parameters in fp32 and casts them at each step.
_MIXED = re.compile(r"pytorch|tensorflow|oneflow|mxnet|mindspore", re.IGNORECASE)
# NVIDIA's scripts of BERT in PyTorch, which these collections ran, keep weights in half precision and a copy in fp32
# (apex at level O2 with its fused optimiser: run_squad.py, run_pretraining.py of DeepLearningExamples).
_NVIDIA_BERT = re.compile(r"bert-.*(lambda_pytorch_throughput|nvidia_dle_training|dlperf_v100_scaling)")
# Frameworks whose pretraining of BERT follows Google's script, and its tokens that are masked, by length.
_GATHERS = re.compile(r"tensorflow|oneflow|mindspore", re.IGNORECASE)
_MASKED = {"128": 20, "512": 80}
# Those that lay images out pixel by pixel themselves where matrix units compute in half precision.
_CHANNELS_LAST = re.compile(r"tensorflow|oneflow|mindspore", re.IGNORECASE)
_WHOLE_STEP = re.compile(r"\bxla\b", re.IGNORECASE)  # compiles the update along
_COMPILED = re.compile(r"torch\.compile|\bxla\b", re.IGNORECASE)
# Software of before 2019, by what tables call it: cuDNN 4 to 7.0, no or new tensor cores, products of BLAS on CPUs.
_EARLY = re.compile(
    r"pytorch 0\.|tensorflow 1\.[0-9]\b|tf 1\.1|caffe|torch-?7|mxnet 1\.[0-2]|2016|neon|cudnn\[|fbfft|chainer|"
    r"cudaconvnet|\(torch\)|cntk",
    re.IGNORECASE,
)
_THREADS = re.compile(r"cpu threads=([1-9][0-9]{0,3})", re.IGNORECASE)
_NAMED_LENGTH = ("-squad", "-shi2016")  # tasks whose sequences are of one length
# Those who timed forward and backward alone and called it training, as they say themselves.
_WITHOUT_UPDATE = frozenset(("neusight_model_latency", "cnn_single_gpu"))


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """One step of ``model`` on the first GPU of a machine; None stands for the network's own size.

    Where a machine has no GPU its CPUs compute, with ``threads`` (None: one a core) and kernels of ``cpu_library``.
    ``micro_batches`` of ``batch`` samples go through the network before the update.
    ``loss``: the cross-entropy was timed too, as the row says, or as belongs to a whole step of training.
    ``spread``: over several GPUs; None: on one.
    ``attention``: one of the zoo's ways, as the row says.
    ``predicted``: of each sequence, how many tokens a BERT predicts where it is pretrained.
    """

    machine: str
    model: str
    batch: int
    options: StepOptions
    micro_batches: int = 1
    image: int | None = None
    sequence_length: int | None = None
    hidden: int | None = None
    heads: int | None = None
    layers: int | None = None
    vocabulary: int | None = None
    threads: int | None = None
    cpu_library: CpuLibrary = "onednn"
    loss: bool = False
    predicted: int | None = None
    attention: str | None = None
    spread: Spread | None = None


def is_early(software: str) -> bool:
    """Return whether *software* is of before 2019."""
    return _EARLY.search(software) is not None


def read_query(cell: Callable[[str], str]) -> TrainingQuery:
    """Return what a row asks; *cell* returns the text of one of ``COLUMNS_ASKED``.

    Raises
    ------
    NotScored
        Where the row is incomplete or asks for what the model does not know.

    """

    def size(column: str) -> int | None:
        if not cell(column):
            return None
        value = number(column, cell(column))
        if value != int(value):
            raise NotScored(f"{column} is no whole number")
        if value > _MAX_SIZE:
            raise NotScored(f"{column} is more than {_MAX_SIZE:g}")
        return int(value)

    spread = read_spread(cell)
    if not cell("model"):
        raise NotScored("model missing")
    try:
        entry = find_entry(cell("model"))
    except InputError:
        raise NotScored(f"no network '{one_line(cell('model'), 40)}' in the zoo") from None
    if entry.sample == "sequences" and not cell("seq_len") and not cell("model").endswith(_NAMED_LENGTH):
        raise NotScored("seq_len missing, and sequences are of any length")
    if _is_nvidia_bert(cell) and cell("dataset") == "nvidia_dle_training" and not cell("model").endswith("-squad"):
        raise NotScored("seq_len is that of the longest: the loader (LDDL) puts sequences into bins by length")
    micro_batches = size("grad_accum") or 1
    batch = size("micro_batch") or size("batch_per_gpu")
    if batch is None:
        whole, parts = size("global_batch"), micro_batches * (spread.ranks if spread else 1)
        if whole is None or whole % parts:
            raise NotScored("batch_per_gpu missing")
        batch = whole // parts
    threads = next(filter(None, map(_THREADS.fullmatch, _words(cell("schedule")))), None)
    return TrainingQuery(
        machine=cell("machine"),
        model=cell("model"),
        batch=batch,
        options=_options(cell, shards=spread is not None and spread.kind == "shard"),
        spread=spread,
        micro_batches=micro_batches,
        image=size("image"),
        sequence_length=size("seq_len"),
        hidden=size("hidden"),
        heads=size("heads"),
        layers=size("layers"),
        vocabulary=size("vocab"),
        threads=int(threads[1]) if threads else None,
        cpu_library="blas" if is_early(cell("software")) else "onednn",
        predicted=_predicted(cell),
        attention=_attention(cell, entry.defaults.get("attention")),
        loss="cross-entropy" in _words(cell("schedule")) or (entry.sample == "sequences" and _has_loss(cell)),
    )


def _framework(cell: Callable[[str], str]) -> str:
    """Return what the framework is called, in small letters; where no column says so, what the software is."""
    return (cell("framework") or cell("software")).lower()


def _predicted(cell: Callable[[str], str]) -> int | None:
    """Return how many tokens of a sequence are predicted, where a script gathers those that were masked."""
    whole = cell("phase") in ("", "train") and cell("model") in ("bert-base", "bert-large")
    return _MASKED.get(cell("seq_len")) if whole and _GATHERS.search(_framework(cell)) else None


def _attention(cell: Callable[[str], str], own: object) -> str | None:
    """Return which of the zoo's kinds of attention was run, as far as the row tells; *own* is the network's."""
    said = next((_ATTENTIONS[word] for word in _words(cell("schedule")) if word in _ATTENTIONS), None)
    if said is None and _framework(cell) == _FIRST_FLASH:
        return "fused-first"
    if (said or own) == "fused" and attention_library(cell("software")) == "native":
        return "fused-native"
    return said


def _has_loss(cell: Callable[[str], str]) -> bool:
    """Return whether a whole step was trained, to which a loss belongs."""
    return cell("phase") in ("", "train") and cell("dataset") not in _WITHOUT_UPDATE


def _words(text: str) -> list[str]:
    """Return what ``schedule`` says: several things with semicolons between."""
    return [word.strip() for word in text.split(";")]


def _options(cell: Callable[[str], str], *, shards: bool) -> StepOptions:
    mode = _MODES.get(cell("phase"))
    if mode is None:
        raise NotScored(f"no such phase: {one_line(cell('phase'), 20)}")
    dtype = cell("dtype")
    if dtype not in _POLICIES:
        raise NotScored(f"no such dtype: {one_line(dtype, 20)}")
    policy = _POLICIES[dtype]
    if dtype in _AUTOCAST and mode != "inference" and _MIXED.search(_framework(cell)):
        policy = _AUTOCAST[dtype] if "pytorch" in _framework(cell) else _GRAPH[dtype]
    if shards and dtype in _MASTERS:  # units are gathered in half precision, and their shares updated in fp32
        policy = _MASTERS[dtype]
    has_master = policy in _AUTOCAST.values() and mode == "train" and _is_nvidia_bert(cell)
    if has_master:
        policy = _MASTERS[dtype]
    recompute = cell("recompute")
    if recompute not in ("", "none", "full"):
        raise NotScored(f"recompute '{one_line(recompute, 20)}' is not modelled")
    issue = cell("issue")
    if issue not in _ISSUES:
        raise NotScored(f"issue '{one_line(issue, 20)}' is not modelled; {', '.join(filter(None, _ISSUES))}")
    by_pixels = "channels last" in _words(cell("schedule"))
    options = StepOptions(
        mode=mode,
        precision=policy,
        compiled=issue == "compile" or _COMPILED.search(cell("software")) is not None,
        cuda_graph=issue == "graph",
        recompute=recompute == "full",
        fused_optimizer=has_master
        or "fused optimizer" in _words(cell("schedule"))
        or _WHOLE_STEP.search(cell("software")) is not None,
        channels_last=by_pixels or (dtype in _AUTOCAST and _is_by_pixels(cell)),
    )
    return replace(options, optimizer=_optimizer(cell))


def _is_nvidia_bert(cell: Callable[[str], str]) -> bool:
    """Return whether NVIDIA's script of BERT in PyTorch was run."""
    return "pytorch" in _framework(cell) and _NVIDIA_BERT.match(cell("model") + cell("dataset")) is not None


def _is_by_pixels(cell: Callable[[str], str]) -> bool:
    """Return whether the framework lays images out pixel by pixel where it computes in half precision."""
    return _CHANNELS_LAST.search(_framework(cell)) is not None and not is_early(cell("software"))


def _optimizer(cell: Callable[[str], str]) -> Optimizer:
    """Return the optimiser: as the row says, else none where only gradients were timed, else the usual one."""
    text = cell("optimizer").lower()
    if text:
        for known in OPTIMIZERS:
            if text == known:
                return known
        raise NotScored(f"no optimizer '{one_line(text, 20)}'; {nearest(text, OPTIMIZERS)}")
    if cell("dataset") in _WITHOUT_UPDATE:
        return "none"
    return "adam" if cell("seq_len") else "momentum"
