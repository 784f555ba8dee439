"""The measurement that would narrow an answer's band, as a ``validate run`` command.

A step that plain torch can run is measured whole; any other through its parts: operators, launches and exchanges.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from simulator.bands.composition import AnswerFacts
from simulator.spelling import mention, spelt, word_of

if TYPE_CHECKING:
    from simulator.questions.collective import CollectiveQuestion
    from simulator.questions.step import StepQuestion

_GROUPS: Mapping[str, str] = {"copy": "copies", "access": "memory", "launch": "launch"}
_OF_OTHERS = ("graph", "master", "int", "nvfp4")  # policies that need frameworks other than torch
_SIZES = {"sequence_length": "seq_len", "image": "image"}
_CALIBRATED = ", then validate calibrate measured/ --out mine.yaml and --calibration mine.yaml"


def narrowing_of(question: Any, facts: AnswerFacts) -> str:
    """Return the command that measures, and what to do with its result; empty if no measurement is known to help.

    *facts* are those of the answer.
    """
    device = "cpu" if facts.generation == "cpu" else "cuda:0"
    topic = "" if question is None else str(question.topic)
    if topic == "step":
        return _of_step(question, device, calibrated=facts.calibrated)
    if topic == "collective":
        return _of_exchange(question)
    if topic == "operator":
        said = "" if question.device is None else f" --device {device}"
        return _command(question.where.topology, "--only ops" + said) + ("" if facts.calibrated else _CALIBRATED)
    return _command(question.where.topology, f"--only {_GROUPS[topic]}") if topic in _GROUPS else ""


def _of_exchange(question: CollectiveQuestion) -> str:
    where = question.where
    if where.nodes is None or where.nodes == 1:
        return _command(where.topology, "--only collectives")
    size = f"--workload bytes:{question.size_bytes:.0f}B --strategy nccl --collective {question.collective}"
    return _command(where.topology, f"--nodes {where.nodes} {size} --prepare") + " (it prints the line to run)"


def _of_step(question: StepQuestion, device: str, *, calibrated: bool) -> str:
    if _torch_runs(question):
        return _command(question.where.topology, " ".join(_words(question, device)))
    groups = "ops,launch" if question.device is not None or question.gpus in ((0,), ()) else "ops,launch,collectives"
    parts = _command(question.where.topology, f"--only {groups}")
    return f"{parts} for its parts, because plain torch has no such step" + ("" if calibrated else _CALIBRATED)


def _torch_runs(question: StepQuestion) -> bool:
    """Return whether ``validate run`` can measure this step: replicas or full shards, with features that torch has."""
    from simulator.questions.options import USUAL

    layout, options = question.layout, question.options
    plain = not (question.servers or question.input or question.stragglers or question.programs > 1 or question.divided)
    return (
        plain
        and question.strategy == "nccl"
        and not layout.divides_network
        and layout.process == "each"
        and layout.zero in (0, 3)
        and options.framework == "pytorch"
        and not options.cuda_graph_blocks
        and not options.launch_blocking
        and (options.accumulation == "add" or question.micro_batches == 1 or layout.zero > 1)
        and question.prefetches
        and question.software.cpu_library == "onednn"
        and question.software.libraries is None
        and options.recompute_parts == USUAL.recompute_parts
        and options.recompute_blocks is None
        and not options.precision.startswith(_OF_OTHERS)
        and options.optimizer not in ("lamb", "bert-adam")
    )


def _words(question: StepQuestion, device: str) -> Iterator[str]:
    """Yield the command-line options that describe the step; *device* is torch's name, used if the step names one."""
    from simulator.questions.options import USUAL
    from simulator.questions.step import BUCKET_BYTES

    options, nodes, shards = question.options, question.where.nodes, question.layout.shards
    bucket = f"bucket:{question.bucket_bytes / 2**20:g}MiB" if question.bucket_bytes else "none"
    if nodes is not None and nodes > 1:
        yield f"{word_of('nodes')} {nodes} --prepare"
    yield from _said(
        workload=shlex.quote(question.workload),
        batch=question.batch,
        micro_batches=question.micro_batches if question.micro_batches > 1 else None,
        device=None if question.device is None else device,
        gpus=len(question.gpus) if question.device is None and question.gpus is not None else None,
        parallel=f"fsdp={shards}" if shards is not None else "fsdp" if question.layout.zero == 3 else None,
        overlap=bucket if question.bucket_bytes != BUCKET_BYTES else None,
        reduce_fp32=question.sums_in_fp32,
        threads=question.threads,
        mode=options.mode if options.mode != USUAL.mode else None,
        precision=options.precision if options.precision != USUAL.precision else None,
        optimizer=options.optimizer if options.optimizer != USUAL.optimizer else None,
        compiled=options.compiled,
    )
    yield from options.recompute_words
    yield from _said(
        channels_last=options.channels_last,
        fused_optimizer=options.fused_optimizer,
        cuda_graph=options.cuda_graph,
    )
    for name, value in question.sizes:
        yield from _said(**{_SIZES[name]: value} if name in _SIZES else {"sizes": f"{name}={value}"})


def _said(**options: object) -> Iterator[str]:
    """Yield each of *options* that is said, as the command line spells it."""
    for name, value in options.items():
        if value is not None and value is not False:
            yield spelt(mention(name, value), "command")


def _command(topology: str, options: str) -> str:
    return f"validate run --topology {shlex.quote(topology)} {options} --out measured/"
