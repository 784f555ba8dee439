"""What ``simulate`` does, from options to output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from simulator.api import compare
from simulator.cli import text
from simulator.cli.machines import machine_of
from simulator.cli.options import check_outputs, look_here, parse_collective, parse_count, parse_gpus, parse_strategies
from simulator.console.files import OutputFile
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import Fault, InputError, SimulationError, one_line
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.results.document import document, to_json
from simulator.results.result import Result
from simulator.results.sweep import sweep_table
from simulator.workload.collective import Collective
from simulator.workload.parse import Payload, parse_workload

__all__ = ["Settings", "run_command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options as they were written."""

    topology: str | None
    strategy: str
    workload: str
    collective: str
    gpus: str | None
    root: str
    nodes: str | None
    fabric: str | None
    gpus_per_process: str
    fold: bool
    json: bool
    trace: str | None
    plot: str | None
    quiet: bool


@dataclass(frozen=True, slots=True)
class _Job:
    """The options as what they stand for."""

    machine: Machine
    strategies: tuple[str, ...]
    collective: Collective
    gpus: Sequence[int]
    root: int
    payload: Payload
    gpus_per_process: int


@dataclass(frozen=True, slots=True)
class _Runs:
    """``by_size`` holds, for each size, the results, fastest first."""

    by_size: tuple[tuple[Result, ...], ...]
    unfit: dict[str, str]


def run_command(settings: Settings) -> None:
    """Check the options, simulate, write the files asked for, and print the results.

    Raises
    ------
    ToposimError
        Where the input cannot be used or the run failed; nothing has been printed or left
        half-written then.

    """
    if not settings.topology:
        raise InputError("--topology is needed, for example --topology p3.16xlarge.yaml (--list-topologies)")
    collective = parse_collective(settings.collective)
    strategies = parse_strategies(settings.strategy)
    look_here(settings.workload)
    payload = parse_workload(settings.workload)
    check_outputs({"--topology": settings.topology, "--trace": settings.trace, "--plot": settings.plot})
    if settings.trace is not None and payload.is_sweep:
        raise InputError(f"--trace shows one size; {one_line(payload.text, 60)} has {len(payload.sizes)}")
    nodes = None if settings.nodes is None else parse_count("--nodes", settings.nodes)
    root = parse_count("--root", settings.root)
    machine = machine_of(settings.topology, nodes, settings.fabric)
    if not machine.gpus:
        raise InputError(f"{machine.name} has no GPU, so nothing is exchanged; --batch 32 runs a step on its CPU")
    gpus = parse_gpus(settings.gpus, machine)
    if not 0 <= root < len(gpus):
        raise InputError(f"--root {root}: the ranks are 0 to {len(gpus) - 1}")
    driven = parse_count("--gpus-per-process", settings.gpus_per_process)
    if not 1 <= driven <= len(gpus):
        raise InputError(f"--gpus-per-process {driven}: {len(gpus)} GPUs take part; a process drives 1 to {len(gpus)}")
    job = _Job(machine, tuple(strategies), collective, gpus, root, payload, driven)
    with ExitStack() as stack:
        trace = stack.enter_context(OutputFile("--trace", settings.trace)) if settings.trace is not None else None
        plot = stack.enter_context(OutputFile("--plot", settings.plot)) if settings.plot is not None else None
        runs = _simulate(job, settings)
        if trace is not None:
            _write_trace(trace, runs.by_size[0], settings)
        if plot is not None:
            _write_plot(plot, runs, settings)
        _print(job, runs, settings)


def _simulate(job: _Job, settings: Settings) -> _Runs:
    router = Router(job.machine)
    by_size: list[tuple[Result, ...]] = []
    unfit: dict[str, str] = {}
    fitting = list(job.strategies)
    with Progress(len(job.payload.sizes) * len(fitting), "simulating", quiet=settings.quiet) as progress:
        for size in job.payload.sizes:
            found: list[Result] = []
            for name in fitting:
                try:
                    results, reasons = compare(
                        job.machine,
                        size,
                        strategies=[name],
                        collective=job.collective,
                        gpus=job.gpus,
                        root=job.root,
                        fold=settings.fold,
                        router=router,
                        gpus_per_process=job.gpus_per_process,
                    )
                except SimulationError as error:
                    raise SimulationError(f"{name} on {job.machine.name}: {error}") from error
                found += results
                unfit.update(reasons)
                progress.advance(name)
            fitting = [name for name in fitting if name not in unfit]
            # Rounding alone does not put one before the other.
            by_size.append(tuple(sorted(found, key=lambda r: float(f"{r.sync_time_s:.9e}"))))
    if not fitting:
        reasons_in_order = [f"--strategy {name} does not fit {job.machine.name}: {why}" for name, why in unfit.items()]
        raise InputError([Fault(reason) for reason in reasons_in_order])
    return _Runs(tuple(by_size), unfit)


def _write_trace(file: OutputFile, results: Sequence[Result], settings: Settings) -> None:
    from simulator.results.trace import chrome_trace

    file.write(chrome_trace(results[0]).encode("utf-8"))
    which = f" of {results[0].strategy}, the fastest" if len(results) > 1 else ""
    _tell(settings, f"wrote the trace{which} to {file.shown}")


def _write_plot(file: OutputFile, runs: _Runs, settings: Settings) -> None:
    from reports.figure import draw

    assert settings.plot is not None
    file.write(draw(runs.by_size, settings.plot.lower().rsplit(".", 1)[1]))
    _tell(settings, f"wrote the plot to {file.shown}")


def _print(job: _Job, runs: _Runs, settings: Settings) -> None:
    machine, payload = job.machine, job.payload
    results = [result for found in runs.by_size for result in found]
    if settings.json:
        sys.stdout.write(to_json(document(machine.name, payload.text, results, runs.unfit)))
        return
    style = choose_style(sys.stdout)
    if payload.is_sweep:
        names = [name for name in job.strategies if name not in runs.unfit]
        tables = [sweep_table([r for r in results if r.strategy == name], root=job.root) for name in names]
        sys.stdout.write("\n".join(tables))
        for line in text.unfit_lines(runs.unfit, style):
            _tell(settings, line)
        return
    if len(job.gpus) == 1:
        network = "resnet50" if payload.text.startswith(("bytes:", "sweep:")) else payload.text
        _tell(settings, f"one GPU exchanges nothing; --workload {network} --batch 32 simulates a step on it")
    lines = text.title(results[0], payload, len(machine.gpus), style)
    lines += ["", *text.comparison(results, style)]
    if len(results) == 1:
        lines += text.detail(results[0], style)
    if runs.unfit:
        lines += ["", *text.unfit_lines(runs.unfit, style)]
    _out(lines)


def _out(lines: Sequence[str]) -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write("\n".join(lines) + "\n")


def _tell(settings: Settings, line: str) -> None:
    if not settings.quiet and sys.stderr is not None:
        sys.stderr.write(line + "\n")
