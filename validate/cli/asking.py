"""What ``validate run`` measures, a step or an exchange: ``simulate``'s options in, plain data for torch out.

The command line of ``simulate`` parses the options, so the measured step is the one that it would predict.  A step
that torch cannot run by itself is refused, with the reason.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from simulator.api import Session
from simulator.api.exchanges import exchange_of, stands_of
from simulator.cli.exchange_command import exchange_questions
from simulator.cli.options import refuse, wants_best
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import CommandOptions, check_read
from simulator.console.files import write_output
from simulator.errors import Fault, InputError, one_line
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import dataclass, own_data, replace
from simulator.results import taken
from simulator.results.confidence import torch_lacks
from simulator.workload.described import network_document
from simulator.workload.find import SUFFIX
from simulator.workload.network import Network
from simulator.workload.operators import Attention
from simulator.workload.parse import parse_workload
from validate.kinds.timing import attention_library

if TYPE_CHECKING:
    from validate.machine.measure.cases.step_shapes import MeasuredStep

FACTORY_SIZES = ("sequence_length", "image")
"""Sizes of a step, besides its batch, that may be passed to a user's factory."""
NETWORKS = "networks"  # subfolder of the measurements that holds the described networks
_WRITTEN = own_data("validate.cli", "not_measured.yaml")
NOT_MEASURED: Mapping[str, str] = {name: why for why, names in _WRITTEN["options"].items() for name in names.split()}
"""Options of ``simulate`` that ``validate run`` does not accept, with the reason."""
WITHOUT_TWIN: Mapping[str, str] = _WRITTEN["workloads"]
"""Workloads of ``simulate`` that are neither steps nor exchanges, with the command that measures something similar."""

_PHASES = {"train": "train", "inference": "inference", "forward": "fwd", "backward": "bwd"}


@dataclass(frozen=True, slots=True)
class StepToMeasure:
    """A step to measure: the question put to ``simulate``, and its network."""

    question: StepQuestion
    network: Network


def check_twin(written: CommandOptions) -> None:
    """Raise InputError for a workload that is neither a step nor an exchange; it names the command to use instead."""
    if written.kind in ("single", "program"):
        kind = "program" if written.kind == "program" else written.what.partition(":")[0]
        raise InputError(f"--workload {one_line(written.what, 60)}: {WITHOUT_TWIN[kind]}")


def asked_steps(written: CommandOptions, devices: int | None) -> list[StepToMeasure]:
    """Return the steps that *written* asks for, by ``--parallel`` and ``--overlap``, on *devices* if they are known."""
    if written.batch is None and written.global_batch is None:
        raise InputError("--workload: a step has a batch; add --batch, for example --batch 32")
    check_read(written)
    if written.strategy is not None or written.servers is not None:
        option = "--strategy" if written.strategy is not None else "--servers"
        raise InputError(f"{option}: a step uses torch's own exchanges; leave out --batch to measure this one")
    _check_named(written)
    session, questions = ask_steps(written)
    _check_one_machine(questions)
    for question in questions:
        if why := next(torch_lacks(question), ""):
            raise InputError(why)
        count = len(question.gpus or (0,))
        if devices is not None and count > devices:
            told = f"--gpus: {count} take part, and {devices} {'is' if devices == 1 else 'are'} here; --gpus {devices}"
            raise InputError(f"{told}, or --prepare for another machine")
        if question.gpus not in (None, tuple(range(count))):
            raise InputError(f"--gpus {written.gpus}: a step is measured on the first GPUs; --gpus {count}")
    return [StepToMeasure(question, session.network(question)) for question in questions]


def _check_named(written: CommandOptions) -> None:
    gpus = f"--gpus {one_line(written.gpus or '', 60)}"
    refuse({gpus: wants_best(written.gpus)}, "is simulate's; name the GPUs here")


def _check_one_machine(questions: Sequence[StepQuestion] | Sequence[CollectiveQuestion]) -> None:
    if len({question.where for question in questions}) > 1:
        raise InputError("--topology: one machine is measured, the one that this runs on")


def keep(asked: StepToMeasure, folder: Path, *, parts: bool = False) -> None:
    """Write the step *asked* for the measuring code, with *parts* its operators; raises InputError and OSError."""
    import torch

    from validate.machine.measure.built.description import DescriptionFile
    from validate.machine.measure.built.module import BuiltNetwork
    from validate.machine.measure.case import Unavailable
    from validate.machine.measure.cases.steps import write_asked

    network, question = as_run(asked.network, f"torch {torch.__version__}"), asked.question
    text = json.dumps(network_document(network), separators=(",", ":"), ensure_ascii=False)
    own = asked.network.name
    stem = Path(own).stem if own.endswith((".yaml", ".yml", ".json")) else own
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in stem)[:60].strip("-")
    name = f"{NETWORKS}/{plain or 'network'}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{SUFFIX}"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text + "\n", encoding="utf-8")
    new.replace(path)
    described = DescriptionFile(str(folder), name)
    shape = replace(_shape(asked, described), parts=parts)
    shapes = [shape]
    if not parts and not shape.recompute and question.workload.startswith("torch:"):  # the factory and its sizes
        known = {"batch": question.batch, **{name: size for name, size in question.sizes if name in FACTORY_SIZES}}
        sizes = (f"{name}={size}" for name, size in known.items())
        shapes.append(replace(shape, source=" ".join([question.workload, *sizes])))
    if not parts:
        try:
            with torch.device("meta"):  # which allocates no memory
                BuiltNetwork(described.read(), shape.recompute, in_blocks=shape.shards > 0)
        except Unavailable as error:
            path.unlink()
            raise InputError(Fault(f"--workload {shape.model}: torch cannot be made to run it: {error}")) from None
    write_asked(folder, shapes)


def as_run(network: Network, software: str) -> Network:
    """Return *network* with the attention kernels of *software* in place of its default ones (``flash2``)."""
    library, layers = attention_library(software), list(network.layers)
    for i, layer in enumerate(layers):
        operator = layer.operator
        if isinstance(operator, Attention) and operator.library == "flash2" != library:
            layers[i] = replace(layer, operator=replace(operator, library=library))
    return replace(network, layers=tuple(layers))


def _shape(asked: StepToMeasure, network: Any) -> "MeasuredStep":
    from validate.machine.measure.cases.step_shapes import MeasuredStep, Policy

    question, options = asked.question, asked.question.options
    assert options.precision in get_args(Policy)  # others are refused
    issue = "+".join(word for word, wanted in (("compile", options.compiled), ("graph", options.cuda_graph)) if wanted)
    trains, count = options.mode == "train", len(question.gpus or (0,))
    own_bucket = question.bucket_bytes in (0, BUCKET_BYTES)
    return MeasuredStep(
        model=one_line(asked.network.name, 100),
        phase=_PHASES[options.mode],  # type: ignore[arg-type]
        issue=issue or "eager",  # type: ignore[arg-type]
        optimizer=options.optimizer if trains else "none",  # type: ignore[arg-type]  # others are refused
        n_gpus=count,
        network=network,
        recompute="" if options.recompute == "none" else options.recompute,
        threads=question.threads or 0,
        bucket=0 if own_bucket or question.layout.zero else round(question.bucket_bytes),
        overlaps=question.bucket_bytes > 0,
        shards=(question.layout.shards or count) if question.layout.zero and count > 1 else 0,
        **taken(question, "batch micro_batches sums_in_fp32 gathers_in_fp32"),
        **taken(options, "policy=precision fused=fused_optimizer channels_last"),
    )


_PAYLOADS = ("bytes:", "sweep:")


def is_exchange(written: CommandOptions) -> bool:
    """Return whether *written* asks for an exchange alone, of bytes or with ``--strategy`` of a network's gradients."""
    return written.kind == "exchange" and (written.strategy is not None or written.what.startswith(_PAYLOADS))


def ask_exchanges(written: CommandOptions, *, on_gpus: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the exchanges to measure, by size and strategy, and why strategies are left out; raises InputError."""
    check_read(written)
    session = Session()
    _check_named(written)
    questions, _ = exchange_questions(written, session)
    payload = parse_workload(written.what).in_type(questions[0].dtype)
    _check_one_machine(questions)
    found, left = [], []
    for size, question in product(payload.sizes, questions):
        if question.collective in ("all-to-all", "send-recv"):
            raise InputError(f"--collective {question.collective}: is measured by --only collectives, as torch does it")
        try:
            if question.strategy == "nccl" and not on_gpus:
                raise InputError("nccl is between GPUs, and the CPU is measured; gloo is what torch does there")
            found.append(exchange_data(session, replace(question, size_bytes=float(size))))
        except InputError as error:
            why = one_line(error, 200)
            if written.strategy not in (None, "all"):
                raise InputError(f"--strategy: {why}") from None
            left.append(why)
    if not found:
        raise InputError("--strategy: none fits this machine")
    return found, list(dict.fromkeys(left))


_BY_TORCH = ("nccl", "gloo")  # measured as the library's own collective, without a schedule


def exchange_data(session: Session, question: CollectiveQuestion) -> dict[str, Any]:
    """Return the exchange of *question* as plain data; raises InputError where it does not fit or lacks two ranks."""
    stands = stands_of(session, question)
    if len(stands) < 2:
        raise InputError("--strategy: one GPU exchanges with nobody; name a topology with two or more")
    asked: dict[str, Any] = {"strategy": question.strategy, "collective": question.collective}
    asked |= {"n_ranks": len(stands), "stands": stands}
    asked = asked if question.strategy in _BY_TORCH else exchange_of(session, question)
    return {**asked, "bytes": int(question.size_bytes)}


def write_exchanges(folder: Path, exchanges: Sequence[dict[str, Any]]) -> None:
    """Write *exchanges* into *folder* for the measuring side; raises InputError where that fails."""
    from validate.machine.measure.case import EXCHANGES  # imports torch

    document = json.dumps({"schema_version": 1, "exchanges": list(exchanges)}) + "\n"
    write_output("--out", folder / EXCHANGES, document.encode())
