"""The library's front door: machines, one simulated collective, all strategies compared, one step of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.machine import Machine, compile_machine
from simulator.network.routing import Router
from simulator.results.result import Result, make_result
from simulator.strategies.base import Request, Unsuitable
from simulator.strategies.registry import find_strategy, strategy_names
from simulator.topology.load import load_topology
from simulator.workload.collective import Collective

if TYPE_CHECKING:  # the models of devices are imported when a step is asked for
    from simulator.devices.calibration import Calibration
    from simulator.devices.cpu.cpu import CpuLibrary
    from simulator.results.step import StepResult
    from simulator.step.options import StepOptions
    from simulator.workload.find import NetworkSource
    from simulator.workload.network import Network

__all__ = ["advise_step", "compare", "load_machine", "make_request", "simulate", "simulate_step"]


def load_machine(topology: str, *, n_nodes: int | None = None, fabric: str | None = None) -> Machine:
    """Return the machine of a topology file or a built-in name, compiled for simulation.

    Raises
    ------
    InputError
        With every fault of the file; or where *fabric* is named for a single machine.

    """
    return compile_machine(load_topology(topology, n_nodes=n_nodes, fabric=fabric))


def simulate(
    machine: Machine,
    strategy: str,
    size_bytes: float,
    *,
    collective: Collective = "all-reduce",
    gpus: Sequence[int] | None = None,
    root: int = 0,
    pairs: Sequence[tuple[int, int]] = (),
    fold: bool = True,
    router: Router | None = None,
    gpus_per_process: int = 1,
) -> Result:
    """Simulate one collective of *size_bytes* over *gpus* of *machine*.

    Parameters
    ----------
    gpus : sequence of int, optional
        GPUs of the machine from 0, in rank order; all of them otherwise.
    root : int
        The rank at which a broadcast starts and a reduce ends.
    pairs : sequence of (source, target)
        Ranks of a send-recv; each rank to the next otherwise.
    fold : bool
        Pass repeated rounds as one event; the result is the same without.
    gpus_per_process : int
        How many GPUs one host thread launches for, as nccl-tests' ``-g``; matters to ``nccl``.

    Raises
    ------
    InputError
        Where the strategy is not known or does not fit; says why.

    """
    request = make_request(
        machine,
        size_bytes,
        collective=collective,
        gpus=gpus,
        root=root,
        pairs=pairs,
        router=router,
        gpus_per_process=gpus_per_process,
    )
    try:
        return _run(strategy, request, fold=fold)
    except Unsuitable as error:
        raise InputError(f"{strategy} does not fit {machine.name}: {error}") from None


def _run(strategy: str, request: Request, *, fold: bool) -> Result:
    plan = find_strategy(strategy).plan(request)
    return make_result(strategy, request, execute(request.machine, plan, fold=fold))


def make_request(
    machine: Machine,
    size_bytes: float,
    *,
    collective: Collective = "all-reduce",
    gpus: Sequence[int] | None = None,
    root: int = 0,
    pairs: Sequence[tuple[int, int]] = (),
    router: Router | None = None,
    gpus_per_process: int = 1,
) -> Request:
    """Return the request that :func:`simulate` plans; raises as it does."""
    chosen = range(len(machine.gpus)) if gpus is None else gpus
    wrong = [g for g in chosen if not 0 <= g < len(machine.gpus)]
    if wrong:
        raise InputError(f"{machine.name} has GPUs 0 to {len(machine.gpus) - 1}; there is no GPU {wrong[0]}")
    if len(set(chosen)) != len(chosen):
        raise InputError("a GPU is named twice; each takes part once")
    if not chosen:
        raise InputError("no GPU takes part; name at least one")
    ranks = tuple(machine.gpus[g] for g in chosen)
    if not 0 <= root < len(ranks):
        raise InputError(f"the root must be a rank from 0 to {len(ranks) - 1}; got {root}")
    for pair in pairs:
        if not all(0 <= end < len(ranks) for end in pair) or pair[0] == pair[1]:
            raise InputError(f"a pair names two different ranks from 0 to {len(ranks) - 1}; got {pair[0]}>{pair[1]}")
    if not 0 <= size_bytes < float("inf"):
        raise InputError(f"the size must be at least zero and finite; got {size_bytes}")
    if gpus_per_process < 1:
        raise InputError(f"a process drives at least one GPU; got {gpus_per_process}")
    return Request(
        machine, router or Router(machine), ranks, collective, size_bytes, root, tuple(pairs), gpus_per_process
    )


def compare(
    machine: Machine,
    size_bytes: float,
    *,
    strategies: Sequence[str] | None = None,
    collective: Collective = "all-reduce",
    gpus: Sequence[int] | None = None,
    root: int = 0,
    fold: bool = True,
    router: Router | None = None,
    gpus_per_process: int = 1,
) -> tuple[list[Result], dict[str, str]]:
    """Simulate every strategy that fits; return the results, fastest first, and why others do not fit."""
    request = make_request(
        machine,
        size_bytes,
        collective=collective,
        gpus=gpus,
        root=root,
        router=router,
        gpus_per_process=gpus_per_process,
    )
    results: list[Result] = []
    unfit: dict[str, str] = {}
    for name in strategies if strategies is not None else strategy_names():
        try:
            results.append(_run(name, request, fold=fold))
        except Unsuitable as error:
            unfit[name] = str(error)
    return sorted(results, key=lambda r: r.sync_time_s), unfit


def simulate_step(
    machine: Machine,
    network: Network,
    options: StepOptions | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
    cpu_library: CpuLibrary = "onednn",
    calibrations: Mapping[str, Calibration] | None = None,
) -> StepResult:
    """Simulate one step of *network* on one device of *machine*.

    Parameters
    ----------
    options : StepOptions, optional
        What a step does; a training step as PyTorch runs it when nothing is set otherwise.
    device : str, optional
        The machine's name of a GPU or a CPU, or ``cpu`` for all sockets; its first GPU otherwise, or its
        CPUs where it has none.
    threads : int, optional
        Of a CPU; one for each core otherwise.
    cpu_library : str
        What a CPU's kernels are from: ``onednn``, or ``blas`` as frameworks of 2016 used it.
    calibrations : mapping of str to Calibration, optional
        Constants of single devices, by the name of their part.

    Raises
    ------
    InputError
        Where the machine has no such device, or the device lacks a figure that the step needs or
        cannot do what *options* ask.

    """
    from simulator.devices.dispatch import graph_launch_time
    from simulator.results.step import make_step_result
    from simulator.step.backward import gradient_order
    from simulator.step.issue import issues_of
    from simulator.step.memory import memory_need
    from simulator.step.options import StepOptions
    from simulator.step.place import find_place
    from simulator.step.plan import plan_step

    chosen = options or StepOptions()
    place = find_place(machine, device, calibrations or {}, threads=threads, library=cpu_library)
    if chosen.cuda_graph and place.name == place.host:
        raise InputError(f"{place.name} is a CPU; a CUDA graph is for GPUs")
    issues = issues_of(place.device, network, chosen)
    plan = plan_step(
        issues,
        device=place.name,
        host=place.host,
        cuda_graph=chosen.cuda_graph,
        graph_launch_s=graph_launch_time(place.device),
    )
    return make_step_result(
        machine=machine.name,
        place=place,
        network=network,
        options=chosen,
        issues=issues,
        memory=memory_need(network, chosen, place.device),
        timeline=execute(machine, plan),
        gradient_order=gradient_order(network) if chosen.mode in ("train", "backward") else (),
    )


def advise_step(
    machine: Machine,
    source: NetworkSource,
    batch: int,
    options: StepOptions | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
    cpu_library: CpuLibrary = "onednn",
    calibrations: Mapping[str, Calibration] | None = None,
) -> StepResult:
    """Simulate one step as :func:`simulate_step`, and what would be faster, or make it fit into memory.

    *source* is what :func:`simulator.workload.find.find_network` returns, so that other batches can be tried.  The
    result's ``alternatives`` are simulated changes that are faster, its ``remedies`` changes that would each make
    a step fit that does not.  Raises as :func:`simulate_step`.
    """
    from functools import partial

    from simulator.results.alternatives import with_alternatives
    from simulator.step.changes import changes_of
    from simulator.step.fitting import larger_device, what_would_fit
    from simulator.step.options import StepOptions
    from simulator.step.place import find_place

    def step(network: Network, changed: StepOptions) -> StepResult:
        return simulate_step(
            machine,
            network,
            changed,
            device=device,
            threads=threads,
            cpu_library=cpu_library,
            calibrations=calibrations,
        )

    chosen = options or StepOptions()
    result = step(source.build(batch), chosen)
    where = find_place(machine, device, calibrations or {}, threads=threads, library=cpu_library).device
    others = {words: partial(lambda build: step(build(batch), chosen), build) for words, build in source.variants}
    result = with_alternatives(
        result,
        batch,
        changes_of(chosen, where),
        lambda changed, size: step(source.build(size), changed),
        others,
    )
    if result.memory.fits:
        return result
    remedies = what_would_fit(source.build, batch, chosen, where, source.variants)
    return replace(result, remedies=(*remedies, larger_device(result.memory.total_bytes)))
