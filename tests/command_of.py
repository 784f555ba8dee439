"""Turn a question into the command that asks it: :func:`command_of`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from simulator.api import Session
from simulator.api.session import Question
from simulator.cli.written import DEFAULTS, option_spelt
from simulator.errors import InputError
from simulator.questions.collective import DTYPES, OF_NCCL, CollectiveQuestion
from simulator.questions.layout import REPLICAS
from simulator.questions.single import DiskQuestion
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import NCCL_TODAY, Software, month_words
from simulator.questions.words import question_words
from simulator.workload.operators import Conv2d
from simulator.workload.zoo.registry import find_entry


def command_of(question: Question) -> list[str]:
    """Return the options with which ``simulate`` answers *question*."""
    if isinstance(question, CollectiveQuestion):
        said = _collective(question)
    elif isinstance(question, StepQuestion):
        said = _step(question)
    else:
        said = {"workload": question_words(question), "device": getattr(question, "device", None)}
        if not isinstance(question, DiskQuestion):  # its words say the threads
            said["threads"] = getattr(question, "threads", None)
    where = question.where
    said |= {"topology": where.topology, "nodes": where.nodes, "fabric": where.fabric}
    words: list[str] = []
    for name, usual in DEFAULTS.items():
        value = said.get(name)
        if value is None or value == usual:
            continue
        if isinstance(value, bool):
            words.append(option_spelt(name))
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [option_spelt(name), str(each)]
    return words


_SESSION = Session()  # looks up the number of GPUs of a machine


def _counted(count: int | None) -> str | None:
    return None if count is None else str(count)


def _collective(question: CollectiveQuestion) -> dict[str, Any]:
    return {
        "workload": f"bytes:{question.size_bytes:.17g}B",
        "collective": question.collective,
        "strategy": question.strategy,
        "gpus": _gpus(question.gpus),
        "group_size": question.group_size,
        "root": str(question.root) if question.collective in ("broadcast", "reduce") else None,
        "pairs": ",".join(f"{source}>{target}" for source, target in question.pairs) or None,
        "gpus_per_process": str(question.gpus_per_process) if question.strategy == "nccl" else None,
        **{name: getattr(question, name) for name in OF_NCCL},
        "dtype": question.dtype if question.dtype in DTYPES else "fp8",  # formats that no switch adds take equally long
        "nccl": _nccl(question.software) if question.strategy == "nccl" else None,
    }


def _step(question: StepQuestion) -> dict[str, Any]:
    options = question.options
    gpus = question.gpus or _SESSION.machine(question.where).gpus
    on_cpu = question.device.startswith("cpu") if question.device else not gpus
    trains, alone = options.mode == "train", question.device is not None or len(gpus) <= 1
    sizes = dict(question.sizes)
    precision = options.precision if options.precision != "torch" else None
    with suppress(InputError):  # simulate's default for language models
        entry = find_entry(question.workload)
        if entry.in_half:
            precision = options.precision
            sizes.setdefault("attention", entry.defaults["attention"])
    how = options.recompute if options.trains else "none"
    said = {
        "workload": question.workload,
        "batch": question.batch,
        "sizes": tuple(f"{name}={value}" for name, value in sizes.items()),
        "mode": options.mode,
        "precision": precision,
        "optimizer": options.optimizer if trains else None,
        "compiled": options.compiled,
        "cuda_graph": options.cuda_graph,
        "recompute": how == "full",
        "recompute_operators": how == "operators",
        "recompute_parts": ",".join(options.recompute_parts) if how == "selective" else None,
        "recompute_blocks": None if how == "none" else _counted(options.recompute_blocks),
        "framework": options.framework,
        "launch_blocking": options.launch_blocking,
        "delayed_scales": options.delayed_scales,
        "offload": question.offload if question.offload != "none" else None,
        "offload_to": question.offload_to if question.offload_to != "host" else None,
        "bind_cores_to_rank": question.bind_cores,
        "round_robin_gradients": question.round_robin,
        "expandable_segments": options.expandable_segments,
        "accumulate": options.accumulation if _adds(question) else None,
        "channels_last": options.channels_last and _convolves(question),
        "fused_optimizer": options.fused_optimizer and trains,
        "micro_batches": str(question.micro_batches),
        "device": question.device,
        "gpus": None if question.device is not None else _gpus(question.gpus),
        "threads": question.threads,
        "cpu_library": question.software.cpu_library if on_cpu else None,
        "gpu_clock": f"{question.software.gpu_clock_Hz:.17g}Hz" if question.software.gpu_clock_Hz else None,
        "libraries": month_words(question.software.libraries) if question.software.libraries else None,
    }
    if alone or options.mode == "inference":  # no exchange
        return said
    layout = (question.layout.words,) if question.layout != REPLICAS else ()
    said |= {"parallel": layout, "strategy": question.strategy if question.strategy != "nccl" else None}
    said |= {"reduce_fp32": question.sums_in_fp32, "contention": question.contention}
    said |= {"gradient_as_bucket_view": question.bucket_views, "reduce_whole": question.sums_whole}
    said |= {name: getattr(question, name) for name in OF_NCCL}
    said["nccl"] = _nccl(question.software) if question.strategy == "nccl" else None
    if question.layout.zero == 3:
        return (
            said
            | {"prefetch": question.prefetches, "gather_fp32": question.gathers_in_fp32}
            | {"gather_again": question.gathers_again, "flat_parameters": question.flat_parameters}
        )
    bucket = f"bucket:{question.bucket_bytes:.17g}B" if question.bucket_bytes else "none"
    return said | {"overlap": bucket if question.bucket_bytes != BUCKET_BYTES else None}


def _adds(question: StepQuestion) -> bool:
    trains = question.options.mode in ("train", "backward")
    return trains and question.micro_batches > 1 and question.layout.zero < 2


def _convolves(question: StepQuestion) -> bool:
    return any(isinstance(layer.operator, Conv2d) for layer in _SESSION.network(question).layers)


def _gpus(gpus: Sequence[int] | None) -> str | None:
    """Return the value of ``--gpus`` for these GPUs; a plain number would be a count."""
    if gpus is None:
        return None
    return ",".join(map(str, gpus)) if len(gpus) > 1 else f"{gpus[0]}-{gpus[0]}"


def _nccl(software: Software) -> str | None:
    return ".".join(map(str, software.nccl)) if software.nccl != NCCL_TODAY else None
