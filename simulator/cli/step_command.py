"""What ``simulate`` does with ``--batch``: a training step on one device or over several, in each way asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from simulator.api.session import Session
from simulator.cli.machines import find_machines
from simulator.cli.options import (
    look_here,
    parse_choice,
    parse_count,
    parse_gpus,
    parse_software,
    parse_strategies,
    refuse,
)
from simulator.cli.output import Files, show
from simulator.cli.written import OVERLAP, Written
from simulator.collectives.request import Unsuitable
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import Fault, InputError, SimulationError, one_line
from simulator.network.machine import Machine
from simulator.questions.calibration import Calibration
from simulator.questions.options import MODES, OPTIMIZERS, POLICIES, StepOptions
from simulator.questions.step import BUCKET_BYTES, PARALLELISMS, StepQuestion
from simulator.questions.where import CPU_LIBRARIES, Where
from simulator.results.document import to_json
from simulator.results.training import TrainingResult
from simulator.units import format_size, parse_quantity

__all__ = ["read_calibrations", "run_steps"]

_MAX_SIZE = 10**7


@dataclass(frozen=True, slots=True)
class _Runs:
    """``found`` are results, fastest first; ``unfit`` says by name which ways do not fit, and why."""

    found: tuple[TrainingResult, ...]
    unfit: dict[str, str]


def run_steps(written: Written) -> None:
    """Check the options, simulate, write the files asked for, and print the results.

    Raises
    ------
    ToposimError
        Where the input cannot be used; or, after the result has been printed, where the step
        does not fit into the memory of its devices.

    """
    look_here(written.workload)
    options = _options(written)
    session = Session()
    machines = find_machines(written, session)
    session = session.calibrated(read_calibrations(written.calibration, [session.machine(w) for w in machines]))
    questions = [question for where in machines for question in _ways(written, session, where, options)]
    with ExitStack() as stack:
        files = Files(written, stack)
        runs = _simulate(written, session, questions)
        best = runs.found[0]
        if files.wants_trace:
            from simulator.results.step_trace import step_trace

            several = len(runs.found) > 1
            name = f"{best.machine} {best.step.workload} batch {best.step.samples}"
            files.trace(step_trace(best.timeline, name, best.device_count), f" of {best.way}" if several else "")
        if files.plot_kind:
            from reports.step import draw_steps

            files.plot(draw_steps(runs.found, files.plot_kind))
        _print(written, runs)
    if not best.fits:
        raise SimulationError(_out_of_memory(best))


# -- questions -----------------------------------------------------------------------


def _options(written: Written) -> StepOptions:
    options = StepOptions(
        mode=parse_choice("--mode", written.mode, MODES),
        precision=parse_choice("--precision", written.precision, POLICIES),
        optimizer=parse_choice("--optimizer", written.optimizer or "momentum", OPTIMIZERS),
        compiled=written.compiled,
        cuda_graph=written.cuda_graph,
        recompute=written.recompute,
        channels_last=written.channels_last,
        fused_optimizer=written.fused_optimizer,
    )
    if options.mode != "train":
        updates = {"--optimizer": written.optimizer is not None, "--fused-optimizer": written.fused_optimizer}
        refuse(updates, f"updates parameters, and --mode {options.mode} updates none")
    if options.mode == "inference":
        refuse({"--recompute": options.recompute}, "is for the backward pass, and --mode inference has none")
    return options


def _ways(written: Written, session: Session, where: Where, options: StepOptions) -> Iterator[StepQuestion]:
    """Yield the questions about one machine: for each strategy, parallelism and overlap."""
    machine = session.machine(where)
    gpus = _gpus(written, machine)
    count = 1 if gpus is None else len(gpus)
    library = parse_choice("--cpu-library", written.cpu_library, CPU_LIBRARIES)
    base = StepQuestion(
        where=where,
        workload=written.workload,
        batch=_batch(written, count),
        sizes=tuple(_sizes(written).items()),
        options=options,
        micro_batches=_size("--micro-batches", written.micro_batches),
        device=written.device,
        gpus=gpus,
        sums_in_fp32=written.reduce_fp32,
        contention=written.contention,
        threads=None if written.threads is None else _size("--threads", written.threads),
        software=parse_software(written.nccl, library),
    )
    if written.optimizer is None and session.network(base).sample == "sequences":
        base = replace(base, options=replace(options, optimizer="adam"))  # as transformers are trained
    if count == 1:
        apart = {
            "--strategy": written.strategy is not None,
            "--parallel": written.parallel != "dp",
            "--overlap": written.overlap != OVERLAP,
            "--reduce-fp32": written.reduce_fp32,
            "--nccl": written.nccl is not None,
        }
        refuse(apart, f"is about an exchange, and one device of {machine.name} steps alone")
        yield base
        return
    if options.mode == "inference":
        refuse(
            {"--parallel": written.parallel != "dp"}, "divides the training of a network; --mode inference trains none"
        )
    strategies = parse_strategies(written.strategy or "nccl")
    parallelisms = [parse_choice("--parallel", word, PARALLELISMS) for word in written.parallel.split(",")]
    overlaps = [_overlap(word) for word in written.overlap.split(",")]
    for parallel in dict.fromkeys(parallelisms):
        # Shards are gathered one unit ahead, whatever is said of buckets.
        for bucket_bytes in dict.fromkeys(overlaps) if parallel == "dp" else (BUCKET_BYTES,):
            for strategy in strategies:
                yield replace(base, parallel=parallel, strategy=strategy, bucket_bytes=bucket_bytes)


def _gpus(written: Written, machine: Machine) -> tuple[int, ...] | None:
    """Return the GPUs that take part, None where one device is named or there is no GPU."""
    if written.device is not None:
        refuse({"--gpus": written.gpus is not None}, "and --device both say what takes part; give one of the two")
        return None
    if not machine.gpus:
        refuse({"--gpus": written.gpus is not None}, f"{machine.name} has no GPU; its CPU takes part")
        return None
    return tuple(parse_gpus(written.gpus, machine))


def _batch(written: Written, count: int) -> int:
    if written.global_batch is None:
        return _size("--batch", written.batch or "")
    refuse({"--batch": written.batch is not None}, "and --global-batch both say it; give one of the two")
    whole = _size("--global-batch", written.global_batch)
    times = count * _size("--micro-batches", written.micro_batches)
    if whole % times:
        raise InputError(f"--global-batch {whole}: {times} devices times micro-batches do not share it evenly")
    return whole // times


def _overlap(text: str) -> float:
    """Return the bytes of a bucket; 0 where nothing overlaps."""
    word = text.strip()
    if word == "none":
        return 0.0
    name, _, size = word.partition(":")
    if name != "bucket":
        raise InputError(f"--overlap {one_line(text, 40)}: none or bucket:25MiB")
    try:
        return parse_quantity(size, "size", positive=True) if size else BUCKET_BYTES
    except ValueError as error:
        raise InputError(f"--overlap {one_line(text, 40)}: {error}") from None


def _size(option: str, text: str) -> int:
    value = parse_count(option, text)
    if not 1 <= value <= _MAX_SIZE:
        raise InputError(f"{option} {value}: from 1 to {_MAX_SIZE}")
    return value


def _sizes(written: Written) -> dict[str, int | str]:
    """Return the sizes of the network: ``--seq-len``, ``--image``, and what ``--set`` was given."""
    found: dict[str, int | str] = {}
    for option, name, text in (("--seq-len", "sequence_length", written.seq_len), ("--image", "image", written.image)):
        if text is not None:
            found[name] = _size(option, text)
    for text in written.sizes:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise InputError(f"--set {one_line(text, 60)}: write a name and a value, for example --set layers=12")
        if key in found:
            raise InputError(f"--set {one_line(text, 60)}: {one_line(key, 40)} is set twice")
        found[key] = int(value) if value.isascii() and value.isdigit() else value
    return found


def read_calibrations(path: str | None, machines: Sequence[Machine]) -> dict[str, Calibration]:
    """Return the calibrations in the file *path*; at least one must be of a device of *machines*."""
    if path is None:
        return {}
    from simulator.devices.calibration_file import load_calibration
    from simulator.topology.catalogue import part_names
    from simulator.topology.parts import CpuPart, GpuPart

    parts = {node.part_name for m in machines for node in m.nodes if isinstance(node.part, GpuPart | CpuPart)}
    found = load_calibration(path, {*parts, *part_names("gpu"), *part_names("cpu")})
    if not parts.intersection(found):
        names = " and ".join(machine.name for machine in machines)
        has = ", ".join(sorted(parts))
        raise InputError(Fault(f"calibrates {', '.join(found)}; {names} has {has}", one_line(path)))
    return found


# -- answers -------------------------------------------------------------------------


def _simulate(written: Written, session: Session, questions: Sequence[StepQuestion]) -> _Runs:
    found: list[TrainingResult] = []
    unfit: dict[str, str] = {}
    with Progress(len(questions), "simulating", quiet=written.quiet) as progress:
        for question in questions:
            try:
                # What would be faster takes longer than the step: it is for one answer.
                found.append(session.advised(question) if len(questions) == 1 else session.step(question))
            except Unsuitable as reason:
                unfit[_way(session, question, questions)] = str(reason)
            progress.advance(question.strategy)
    if not found:
        raise InputError([Fault(f"--strategy {name} does not fit: {why}") for name, why in unfit.items()])
    return _Runs(tuple(sorted(found, key=lambda answer: (not answer.fits, -answer.throughput))), unfit)


def _way(session: Session, question: StepQuestion, questions: Sequence[StepQuestion]) -> str:
    several = len({other.where for other in questions}) > 1
    return f"{question.strategy} on {session.machine(question.where).name}" if several else question.strategy


def _print(written: Written, runs: _Runs) -> None:
    from simulator.cli.step_text import step_lines, ways_lines
    from simulator.results.step_document import steps_document

    if written.json:
        sys.stdout.write(to_json(steps_document(runs.found, runs.unfit)))
        return
    style = choose_style(sys.stdout)
    if len(runs.found) == 1 and not runs.unfit:
        show(step_lines(runs.found[0], style))
    else:
        show(ways_lines(runs.found, runs.unfit, style))


def _out_of_memory(result: TrainingResult) -> str:
    each, step = result.tightest.need, result.step
    text = f"out of memory: {step.workload} at batch {step.samples} needs {format_size(each.total_bytes, 3)}, "
    text += f"{result.tightest.part} has {format_size(each.available_bytes, 3)}, "
    text += f"{format_size(each.missing_bytes, 3)} too little"
    return f"{text}; what would fit: {' or '.join(result.remedies)}" if result.remedies else text
