"""The step that ``validate run --workload`` measures: asked in the words of ``simulate``, written out for torch alone.

The words are read by the command line of ``simulate`` itself, so that they mean the same; what it would predict is
what is measured.  What no machine can be made to do by torch alone is refused, with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from simulator.cli.options import refuse, wants_best
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import Written, check_read
from simulator.errors import Fault, InputError, one_line
from simulator.questions.step import StepQuestion
from simulator.workload.described import SUFFIX, described
from simulator.workload.network import Layer, Network
from simulator.workload.operators import Attention
from validate.kinds.serving import attention_library

if TYPE_CHECKING:
    from validate.machine.measure.cases.step_shapes import StepShape

__all__ = ["NETWORKS", "NOT_MEASURED", "as_run", "ask", "keep"]

NETWORKS = "networks"  # the folder of what is written out, in that of the measurements
_SEVERAL = "is about several devices; what they exchange is measured by --only collectives"
_MODEL = "changes what is predicted, and not what a machine does; validate compare is told"
_OUTPUT = "is of what simulate prints"
_BY_TABLE = "is of collectives that a library does; --only collectives measures those, by NCCL's own variables"
NOT_MEASURED: Mapping[str, str] = {
    **dict.fromkeys(("parallel", "overlap", "reduce_fp32", "prefetch", "divide"), _SEVERAL),
    **dict.fromkeys(("staleness", "lose", "nodes", "fabric"), _SEVERAL),
    **dict.fromkeys(("slow_link", "neighbour", "straggler", "mtbf"), "is an event that nobody can order"),
    **dict.fromkeys(("checkpoint_every", "checkpoint_time", "restart_time"), "is of a run with failures"),
    **dict.fromkeys(("calibration", "contention", "what_if", "nccl", "epoch"), _MODEL),
    **dict.fromkeys(("json", "trace", "plot", "show_options"), _OUTPUT),
    **dict.fromkeys(("pairs", "group_size", "gpus_per_process", "algorithm", "dtype", "redop"), _BY_TABLE),
    "fold": _MODEL,
    "input": "is a loader of samples; a step is measured with samples that are there",
    "programs": "is other programs on the same GPU",
    "framework": "is Megatron-LM's modules; a step is measured with torch's",
    "cpu_library": "is a library of 2016; a step is measured with what torch has",
    "cuda_graph_blocks": "captures block by block, as Megatron-LM does; --cuda-graph captures the whole step",
    "launch": "is read by simulate --show-options, which prints it in these words",
}
"""Options of ``simulate`` that ``validate run`` does not take, and why."""

_PHASES = {"train": "train", "inference": "inference", "forward": "fwd", "backward": "bwd"}
_POLICIES = {
    "graph": "is TensorFlow's way to compute in half precision; amp-fp16 and amp-bf16 are torch's",
    "master": "keeps weights in half precision and a copy in fp32, by Apex or Megatron-LM; amp-bf16 is torch's",
    "int": "multiplies whole numbers by kernels that torch alone has not",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A step: what ``simulate`` is asked, and the network that it reads."""

    question: StepQuestion
    network: Network


def ask(written: Written, devices: int) -> Asked:
    """Return the step that was *written*, on a machine with so many *devices* of its kind; raises InputError."""
    if written.batch is None and written.global_batch is None:
        raise InputError("--workload: a step has a batch; add --batch, for example --batch 32")
    check_read(written)
    if written.strategy is not None or written.servers is not None:
        option = "--strategy" if written.strategy is not None else "--servers"
        raise InputError(f"{option}: in a step torch's own exchanges are measured; without --batch the exchange is")
    refuse(
        {f"--gpus {one_line(written.gpus or '', 60)}": wants_best(written.gpus)}, "is simulate's; name the GPUs here"
    )
    session, questions = ask_steps(written)
    if len(questions) > 1:
        raise InputError("--topology: one machine is measured, the one that this runs on")
    question = questions[0]
    for prefix, why in _POLICIES.items():
        if question.options.precision.startswith(prefix):
            raise InputError(f"--precision {question.options.precision}: {why}")
    count = len(question.gpus or (0,))
    if count > devices:
        raise InputError(
            f"--gpus: {count} take part, and {devices} {'is' if devices == 1 else 'are'} here; --gpus {devices}"
        )
    return Asked(question, session.network(question))


def keep(asked: Asked, folder: Path, *, parts: bool = False) -> None:
    """Write what is *asked* into *folder*, where measuring finds it; with *parts* its operators, not the step.

    Raises InputError where torch cannot be made to run it; OSError.
    """
    import torch

    from validate.machine.measure.built.description import Described
    from validate.machine.measure.cases.asked import write_asked

    network = as_run(asked.network, f"torch {torch.__version__}")
    text = json.dumps(described(network), separators=(",", ":"), ensure_ascii=False)
    name = f"{NETWORKS}/{_file_name(asked.network.name, text)}"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text + "\n", encoding="utf-8")
    new.replace(path)
    shape = replace(_shape(asked, Described(str(folder), name)), parts=parts)
    try:
        if not parts:
            _check(shape)
    except InputError:
        path.unlink()
        raise
    write_asked(folder, [shape])


def as_run(network: Network, software: str) -> Network:
    """Return *network* with the kernels of attention that *software* takes where no other are asked for.

    Torch takes those that are written for the GPU's own generation since 2.11, as rows of its own steps are read.
    """
    library = attention_library(software)

    def layer_as_run(layer: Layer) -> Layer:
        operator = layer.operator
        if isinstance(operator, Attention) and operator.library == "flash2" != library:
            return replace(layer, operator=replace(operator, library=library))
        return layer

    return replace(network, layers=tuple(map(layer_as_run, network.layers)))


def _file_name(name: str, text: str) -> str:
    """Return a name that says which network it is, and differs where anything in it does."""
    stem = Path(name).stem if name.endswith((".yaml", ".yml", ".json")) else name
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in stem)[:60].strip("-")
    return f"{plain or 'network'}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{SUFFIX}"


def _shape(asked: Asked, network: Any) -> StepShape:
    from validate.machine.measure.cases.step_shapes import Policy, StepShape

    question, options = asked.question, asked.question.options
    assert options.precision in get_args(Policy)  # others are refused
    issue = "+".join(word for word, wanted in (("compile", options.compiled), ("graph", options.cuda_graph)) if wanted)
    trains = options.mode == "train"
    return StepShape(
        model=one_line(asked.network.name, 100),
        batch=question.batch,
        policy=options.precision,  # type: ignore[arg-type]
        phase=_PHASES[options.mode],  # type: ignore[arg-type]
        issue=issue or "eager",  # type: ignore[arg-type]
        optimizer=options.optimizer if trains else "none",
        fused=options.fused_optimizer,
        channels_last=options.channels_last,
        n_gpus=len(question.gpus or (0,)),
        network=network,
        micro_batches=question.micro_batches,
        recompute="full" if options.recompute else "selective" if options.recompute_attention else "",
        threads=question.threads or 0,
    )


def _check(shape: StepShape) -> None:
    """Refuse (InputError) what cannot be built, without taking any memory for it."""
    import torch

    from validate.machine.measure.built.module import BuiltNetwork
    from validate.machine.measure.case import Unavailable

    assert shape.network is not None
    try:
        with torch.device("meta"):
            BuiltNetwork(shape.network.read(), shape.recompute)
    except Unavailable as error:
        raise InputError(Fault(f"--workload {shape.model}: torch cannot be made to run it: {error}")) from None
