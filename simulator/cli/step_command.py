"""What ``simulate`` does with ``--batch``: one step of a network on one device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

from simulator.api import advise_step
from simulator.cli.machines import machine_of
from simulator.cli.options import check_outputs, look_here, parse_count, refuse
from simulator.console.files import OutputFile
from simulator.console.style import choose_style
from simulator.devices.calibration import Calibration
from simulator.errors import Fault, InputError, SimulationError, nearest, one_line
from simulator.network.machine import Machine
from simulator.results.document import to_json
from simulator.results.step import StepResult
from simulator.step.options import MODES, OPTIMIZERS, POLICIES, StepOptions
from simulator.topology.parts import CpuPart, GpuPart
from simulator.workload.find import NetworkSource, find_network

__all__ = ["StepSettings", "run_step_command"]

T = TypeVar("T", bound=str)
_MAX_SIZE = 10**7


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """The options as they were written."""

    topology: str | None
    workload: str
    batch: str
    sequence_length: str | None
    image: str | None
    sizes: Sequence[str]
    mode: str
    precision: str
    optimizer: str | None
    compiled: bool
    cuda_graph: bool
    recompute: bool
    channels_last: bool
    fused_optimizer: bool
    device: str | None
    threads: str | None
    calibration: str | None
    json: bool
    trace: str | None
    plot: str | None
    quiet: bool


def run_step_command(settings: StepSettings) -> None:
    """Check the options, simulate, write the trace if asked for, and print the result.

    Raises
    ------
    ToposimError
        Where the input cannot be used; or, after the result has been printed, where the step
        does not fit into the device's memory.

    """
    if not settings.topology:
        raise InputError("--topology is needed, for example --topology p3.2xlarge.yaml (--list-topologies)")
    batch = _size("--batch", settings.batch)
    options = StepOptions(
        mode=_choice("--mode", settings.mode, MODES),
        precision=_choice("--precision", settings.precision, POLICIES),
        optimizer=_choice("--optimizer", settings.optimizer or "momentum", OPTIMIZERS),
        compiled=settings.compiled,
        cuda_graph=settings.cuda_graph,
        recompute=settings.recompute,
        channels_last=settings.channels_last,
        fused_optimizer=settings.fused_optimizer,
    )
    _check_mode(options, settings)
    sequence_length = None if settings.sequence_length is None else _size("--seq-len", settings.sequence_length)
    image = None if settings.image is None else _size("--image", settings.image)
    look_here(settings.workload)
    source = find_network(
        settings.workload,
        training=options.trains,
        sequence_length=sequence_length,
        image=image,
        settings=_sizes(settings.sizes),
    )
    check_outputs({"--topology": settings.topology, "--trace": settings.trace, "--plot": settings.plot})
    machine = machine_of(settings.topology)
    if settings.optimizer is None and source.build(batch).sample == "sequences":
        options = replace(options, optimizer="adam")  # as transformers are trained
    with ExitStack() as stack:
        trace = stack.enter_context(OutputFile("--trace", settings.trace)) if settings.trace is not None else None
        plot = stack.enter_context(OutputFile("--plot", settings.plot)) if settings.plot is not None else None
        result = _simulate(machine, source, batch, options, settings)
        if trace is not None:
            from simulator.results.step_trace import step_trace

            trace.write(step_trace(result).encode("utf-8"))
            _tell(settings, f"wrote the trace to {trace.shown}")
        if plot is not None and settings.plot is not None:
            from reports.step import draw_step

            plot.write(draw_step(result, settings.plot.lower().rsplit(".", 1)[1]))
            _tell(settings, f"wrote the plot to {plot.shown}")
        _print(result, settings)
    if not result.memory.fits:
        raise SimulationError(_out_of_memory(result))


def _check_mode(options: StepOptions, settings: StepSettings) -> None:
    """Refuse options that the mode leaves without effect."""
    if options.mode != "train":
        updates = {"--optimizer": settings.optimizer is not None, "--fused-optimizer": settings.fused_optimizer}
        refuse(updates, f"updates parameters, and --mode {options.mode} updates none")
    if options.mode == "inference":
        refuse({"--recompute": options.recompute}, "is for the backward pass, and --mode inference has none")


def _simulate(
    machine: Machine, source: NetworkSource, batch: int, options: StepOptions, settings: StepSettings
) -> StepResult:
    threads = None if settings.threads is None else _size("--threads", settings.threads)
    calibrations = _calibrations(settings.calibration, machine)
    return advise_step(
        machine, source, batch, options, device=settings.device, threads=threads, calibrations=calibrations
    )


def _calibrations(path: str | None, machine: Machine) -> dict[str, Calibration]:
    """Return the calibrations in the file *path*; at least one must be of a device of *machine*."""
    if path is None:
        return {}
    from simulator.devices.calibration_file import load_calibration
    from simulator.topology.catalogue import part_names

    parts = {node.part_name for node in machine.nodes if isinstance(node.part, GpuPart | CpuPart)}
    found = load_calibration(path, {*parts, *part_names("gpu"), *part_names("cpu")})
    if not parts.intersection(found):
        has = ", ".join(sorted(parts))
        raise InputError(Fault(f"calibrates {', '.join(found)}; {machine.name} has {has}", one_line(path)))
    return found


def _tell(settings: StepSettings, line: str) -> None:
    if not settings.quiet and sys.stderr is not None:
        sys.stderr.write(line + "\n")


def _print(result: StepResult, settings: StepSettings) -> None:
    from simulator.cli.step_text import step_lines
    from simulator.results.step_document import step_document

    if settings.json:
        sys.stdout.write(to_json(step_document(result)))
        return
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write("\n".join(step_lines(result, choose_style(sys.stdout))) + "\n")


def _out_of_memory(result: StepResult) -> str:
    from simulator.units import format_size

    need = result.memory
    return (
        f"out of memory: {result.workload} at batch {result.samples} needs {format_size(need.total_bytes, 3)}, "
        f"{result.part} has {format_size(need.available_bytes, 3)}, {format_size(need.missing_bytes, 3)} too little; "
        f"what would fit: {' or '.join(result.remedies)}"
    )


def _size(option: str, text: str) -> int:
    value = parse_count(option, text)
    if not 1 <= value <= _MAX_SIZE:
        raise InputError(f"{option} {value}: from 1 to {_MAX_SIZE}")
    return value


def _sizes(written: Sequence[str]) -> dict[str, int | str]:
    """Return what ``--set`` was given, as sizes of the network."""
    found: dict[str, int | str] = {}
    for text in written:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"--set {one_line(text, 60)}: write a name and a value, for example --set layers=12")
        if key.strip() in found:
            raise InputError(f"--set {one_line(text, 60)}: {one_line(key.strip(), 40)} is set twice")
        found[key.strip()] = int(value) if value.strip().isascii() and value.strip().isdigit() else value.strip()
    return found


_SYNONYMS = {"adamw": "adam", "float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}


def _choice(option: str, text: str, allowed: Sequence[T]) -> T:
    name = text.strip().lower()
    name = _SYNONYMS.get(name, name)
    for choice in allowed:
        if name == choice:
            return choice
    raise InputError(f"{option} {one_line(text, 40)}: no such choice; {nearest(name, allowed)}")
