"""What ``simulate`` does with ``--batch``: a training step on one device or over several, in each way asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from simulator.api.session import Session
from simulator.cli.machines import find_machines
from simulator.cli.options import (
    look_here,
    parse_choice,
    parse_count,
    parse_gpus,
    parse_list,
    parse_software,
    parse_strategies,
    read_all,
    refuse,
)
from simulator.cli.output import Files, show
from simulator.cli.written import OVERLAP, Written
from simulator.collectives.request import Unsuitable
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import Fault, InputError, SimulationError, nearest, one_line
from simulator.network.machine import Machine
from simulator.questions.calibration import Calibration
from simulator.questions.options import MODES, OPTIMIZERS, POLICIES, StepOptions
from simulator.questions.step import BUCKET_BYTES, PARALLELISMS, Parallelism, StepQuestion
from simulator.questions.where import CPU_LIBRARIES, Where
from simulator.results.document import to_json
from simulator.results.reason import best_of
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

    Raises ToposimError where the input cannot be used; or, after the result has been printed, where the step does not
    fit into the memory of its devices.
    """
    look_here(written.workload)
    session = Session()
    machines, ways = read_all(lambda: find_machines(written, session), lambda: _ways(written))
    session = session.calibrated(read_calibrations(written.calibration, [session.machine(w) for w in machines]))
    questions = _questions(written, session, machines, ways)
    with ExitStack() as stack:
        files = Files(written, stack)
        runs = _simulate(written, session, questions)
        best = best_of(runs.found)
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


def _ways(written: Written) -> list[StepQuestion]:
    """Return the ways to do the step, each strategy, parallelism and overlap, of no machine yet.

    The batch is what was written, that of all devices together too.
    """
    whole = written.global_batch is not None

    def parallelism(word: str) -> Parallelism:
        return parse_choice("--parallel", word, PARALLELISMS)

    options, batch, micro_batches, threads, sizes, software, strategies, parallelisms, overlaps = read_all(
        lambda: _options(written),
        lambda: _size("--global-batch" if whole else "--batch", written.global_batch or written.batch or ""),
        lambda: _size("--micro-batches", written.micro_batches),
        lambda: None if written.threads is None else _size("--threads", written.threads),
        lambda: tuple(_sizes(written).items()),
        lambda: parse_software(written.nccl, parse_choice("--cpu-library", written.cpu_library, CPU_LIBRARIES)),
        lambda: parse_strategies(written.strategy or "nccl"),
        lambda: parse_list("--parallel", written.parallel, parallelism, "dp,fsdp"),
        lambda: parse_list("--overlap", written.overlap, _overlap, "none,bucket:25MiB"),
    )
    if "dp" not in parallelisms:
        refuse({"--overlap": written.overlap != OVERLAP}, "is for --parallel dp; shards are gathered one unit ahead")
    if "fsdp" not in parallelisms:
        of_shards = {"--reduce-fp32": written.reduce_fp32, "--no-prefetch": not written.prefetch}
        refuse(of_shards, "is for --parallel fsdp")
    base = StepQuestion(
        where=Where(""),
        workload=written.workload,
        batch=batch,
        sizes=sizes,
        options=options,
        micro_batches=micro_batches,
        device=written.device,
        sums_in_fp32=written.reduce_fp32,
        prefetches=written.prefetch,
        contention=written.contention,
        threads=threads,
        software=software,
    )
    return [
        replace(base, parallel=parallel, strategy=strategy, bucket_bytes=bucket_bytes)
        for parallel in parallelisms
        for bucket_bytes in (overlaps if parallel == "dp" else (BUCKET_BYTES,))
        for strategy in strategies
    ]


def _options(written: Written) -> StepOptions:
    mode, precision, optimizer = read_all(
        lambda: parse_choice("--mode", written.mode, MODES),
        lambda: parse_choice("--precision", written.precision, POLICIES),
        lambda: parse_choice("--optimizer", written.optimizer or "momentum", OPTIMIZERS),
    )
    if mode != "train":
        updates = {"--optimizer": written.optimizer is not None, "--fused-optimizer": written.fused_optimizer}
        refuse(updates, f"updates parameters, and --mode {mode} updates none")
    if mode == "inference":
        refuse({"--recompute": written.recompute}, "is for the backward pass, and --mode inference has none")
    return StepOptions(
        mode=mode,
        precision=precision,
        optimizer=optimizer,
        compiled=written.compiled,
        cuda_graph=written.cuda_graph,
        recompute=written.recompute,
        channels_last=written.channels_last,
        fused_optimizer=written.fused_optimizer,
    )


def _questions(
    written: Written, session: Session, machines: Sequence[Where], ways: Sequence[StepQuestion]
) -> list[StepQuestion]:
    """Return what is asked of each machine: each of *ways*, or one where one device steps alone."""
    found: list[StepQuestion] = []
    for where in machines:
        machine = session.machine(where)
        gpus = _gpus(written, machine)
        count = 1 if gpus is None else len(gpus)
        if count > 1:
            refuse({"--threads": written.threads is not None}, f"is about a CPU, and {count} GPUs take part")
        own = ways if count > 1 else ways[:1]
        found += [replace(way, where=where, batch=_batch(written, way, count), gpus=gpus) for way in own]
    if written.optimizer is None and session.network(found[0]).sample == "sequences":  # as transformers are trained
        found = [replace(each, options=replace(each.options, optimizer="adam")) for each in found]
    infers = ways[0].options.mode == "inference"
    if infers or not any(each.gpus and len(each.gpus) > 1 for each in found):
        names = " and ".join(session.machine(where).name for where in machines)
        apart = {
            "--strategy": written.strategy is not None,
            "--parallel": written.parallel != "dp",
            "--overlap": written.overlap != OVERLAP,
            "--reduce-fp32": written.reduce_fp32,
        }
        none = "--mode inference has none" if infers else f"one device of {names} steps alone"
        refuse(apart, f"is about an exchange, and {none}")
    return found


def _gpus(written: Written, machine: Machine) -> tuple[int, ...] | None:
    """Return the GPUs that take part, None where one device is named or there is no GPU."""
    if written.device is not None:
        return None
    if not machine.gpus:
        refuse({"--gpus": written.gpus is not None}, f"{machine.name} has no GPU; its CPU takes part")
        return None
    return tuple(parse_gpus(written.gpus, machine))


def _batch(written: Written, way: StepQuestion, count: int) -> int:
    """Return the samples of one of *count* devices and one micro-batch."""
    if written.global_batch is None:
        return way.batch
    parts = count * way.micro_batches
    if way.batch % parts:
        less = way.batch // parts * parts
        of = [f"{count} devices"] if count > 1 else []
        of += [f"{way.micro_batches} micro-batches"] if way.micro_batches > 1 else []
        near = " and ".join(str(size) for size in (less, less + parts) if size)
        raise InputError(f"--global-batch {way.batch}: {' x '.join(of)} do not share it evenly; {near} would do")
    return way.batch // parts


def _overlap(text: str) -> float:
    """Return the bytes of a bucket; 0 where nothing overlaps."""
    if text == "none":
        return 0.0
    name, _, size = text.partition(":")
    if name != "bucket":
        raise InputError(f"--overlap {one_line(text, 40)}: no such choice; {nearest(name, ('none', OVERLAP))}")
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
    options = {"sequence_length": ("--seq-len", written.seq_len), "image": ("--image", written.image)}
    own = {name: (option, text) for name, (option, text) in options.items() if text is not None}
    found: dict[str, int | str] = {name: _size(option, text) for name, (option, text) in own.items()}
    for text in written.sizes:
        key, equals, value = (part.strip() for part in text.partition("="))
        shown = f"--set {one_line(text, 60)}"
        if not equals or not key or not value:
            raise InputError(f"{shown}: write a name and a value, for example --set layers=12")
        if key in own:
            raise InputError(f"{shown}: {own[key][0]} says it already; give one of the two")
        if key in found:
            raise InputError(f"{shown}: {one_line(key, 40)} is set twice")
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
    several = len({question.where for question in questions}) > 1
    with Progress(len(questions), "simulating", quiet=written.quiet) as progress:
        for question in questions:
            try:
                # What would be faster takes longer than the step: it is for one answer.
                found.append(session.advised(question) if len(questions) == 1 else session.step(question))
            except Unsuitable as reason:
                of = f" on {session.machine(question.where).name}" if several else ""
                unfit[f"{question.way}{of}"] = str(reason)
            progress.advance(question.way)
    if not found:
        raise InputError([Fault(f"--strategy {name} does not fit: {why}") for name, why in unfit.items()])
    return _Runs(tuple(sorted(found, key=lambda answer: (not answer.fits, -answer.throughput))), unfit)


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
    each, part = result.tightest.need, result.tightest.part
    text = f"out of memory: {result.step.workload} at batch {result.question.batch} needs"
    text += f" {format_size(each.total_bytes, 3)}, {part} has {format_size(each.available_bytes, 3)},"
    text += f" {format_size(each.missing_bytes, 3)} too little"
    return f"{text}; what would fit: {' or '.join(result.remedies)}" if result.remedies else text
