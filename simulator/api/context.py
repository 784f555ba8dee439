"""What questions are answered with: machines, devices and networks, each made once: :class:`Context`; exchanges."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from simulator.collectives.communicator import Communicator, Request, Strategy
from simulator.collectives.lower import ALPHA_S
from simulator.collectives.registry import find_strategy, strategy_names
from simulator.constants import DEFAULT, Constants, constants_file
from simulator.engine.executor import execute
from simulator.errors import InputError, mention, refused
from simulator.kept import Kept
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Perturbation, merge
from simulator.questions.checks import refuse_all
from simulator.questions.layout import REPLICAS
from simulator.questions.where import TODAY, SlowLink, Software, Where
from simulator.records import replace
from simulator.results.result import Result, make_result
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart, GpuPart

if TYPE_CHECKING:  # device models are imported on first use
    from simulator.devices.predict import Device
    from simulator.places import Place, Places
    from simulator.questions.calibration import Calibration
    from simulator.questions.question import Question
    from simulator.questions.step import StepQuestion
    from simulator.results.training import TrainingResult
    from simulator.topology import Topology
    from simulator.workload.find import NetworkSource
    from simulator.workload.network import Network
else:
    Device = Any

__all__ = ["ALPHA_S", "chosen_gpus", "is_strategy", "machines_fitted_to", "run_collective", "strategy_names"]


def run_collective(
    strategy: Strategy, requests: Sequence[Request], *, fold: bool = True, perturbations: Sequence[Perturbation] = ()
) -> Result:
    """Simulate *requests*, one for each concurrent group, under *perturbations*; raises Unsuitable."""
    plan = replace(merge([strategy.plan(request) for request in requests]), perturbations=tuple(perturbations))
    return make_result(strategy.name, requests[0], execute(requests[0].machine, plan, fold=fold))


def chosen_gpus(machine: Machine, gpus: Sequence[int] | None) -> tuple[int, ...]:
    """Return the node indices of *gpus* of *machine*, of all its GPUs by default; raises InputError."""
    chosen = range(len(machine.gpus)) if gpus is None else gpus
    wrong = [g for g in chosen if not 0 <= g < len(machine.gpus)]
    if wrong:
        raise InputError(f"{machine.name} has GPUs 0 to {len(machine.gpus) - 1}; there is no GPU {wrong[0]}")
    if not chosen:
        raise InputError("no GPU takes part; name at least one")
    return tuple(machine.gpus[g] for g in chosen)


def is_strategy(name: str) -> bool:
    """Return whether there is a strategy called *name*."""
    try:
        find_strategy(name)
    except InputError:
        return False
    return True


@lru_cache(maxsize=1)
def machines_fitted_to() -> tuple[str, ...]:
    """Return the names, as in tables, of the machines whose measurements NCCL's constants were fitted to."""
    return tuple(constants_file("nccl")["fitted"]["nccl"]["machines"])


def planned_nvlink_bps(compute_capability: str | None) -> float:
    """Return the bandwidth in B/s that NCCL plans for one NVLink of a GPU of this compute capability (``9.0``)."""
    from simulator.collectives.nccl.tables import planned_nvlink

    major, _, minor = (compute_capability or "8.0").partition(".")
    return planned_nvlink(int(major) * 10 + int(minor or 0)) * 1e9


_WORDS = 128  # Megatron-LM's default of --make-vocab-size-divisible-by
_LIMITED = ("fused-first", "fused-native", "fused-fourth")  # kernels that some devices do not have
_AMPERE, _HOPPER = 8.0, 9.0  # compute capabilities
_BEFORE_FIRST = "is modelled from Ampere on; simulated as fused, PyTorch's kernel before"
_BEFORE_CUDNN = "runs from Ampere on; simulated as fused-softmax, which Transformer Engine runs before"


def _unchanged(where: Where) -> Where:
    return replace(where, slow_links=(), neighbours=(), shared_network=None, congested=False)


class Context(ABC):
    """Machines, devices and networks by question, and the answers that others need; ``calibrations`` are of devices."""

    def __init__(self, calibrations: Mapping[str, Calibration] | None = None, constants: Constants = DEFAULT) -> None:
        try:
            self.calibrations = dict(calibrations or {})
        except (TypeError, ValueError):
            told = "calibrations are by the name of a part; a machine belongs to a question: Where('p3.16xlarge')"
            raise TypeError(f"{told}; got {calibrations!r:.60}") from None
        self.constants = constants
        self._machines = Kept()  # machines, their routes, networks: what no constant changes
        self._kept = Kept()
        self._known: dict[Where, Topology | Machine] = {}
        self.networks: dict[str, NetworkSource] = {}  # in place of a file or a built-in network of this name

    def calibrated(self, calibrations: Mapping[str, Calibration], constants: Constants | None = None) -> Self:
        """Return a session with other *calibrations* and *constants*; it shares this one's machines."""
        other = type(self)(calibrations, constants or self.constants)
        other._machines = self._machines
        other._known = self._known
        other.networks = dict(self.networks)
        return other

    @abstractmethod
    def time_s(self, question: Question) -> float:
        """Return the predicted time of *question*, in seconds; raises InputError."""

    @abstractmethod
    def step(self, question: StepQuestion) -> TrainingResult:
        """Return the result of a step; raises InputError or Unsuitable."""

    def know(self, where: Where, made: Topology | Machine) -> None:
        """Use *made* for *where* in place of a file or a built-in machine.

        A compiled machine cannot be changed, so its bands are those of a network that no other job uses.
        """
        self._known = {**self._known, _unchanged(where): made}
        self._machines = self._machines.without(where, (where, "all"), (where, "router"))  # others keep theirs

    def is_compiled(self, where: Where) -> bool:
        """Return whether :meth:`know` was given a compiled machine for *where*."""
        return isinstance(self._known.get(_unchanged(where)), Machine)

    def machine(self, where: Where) -> Machine:
        """Return the machine of *where*; raises InputError."""

        def made() -> Machine:
            unchanged = replace(where, slow_links=(), neighbours=(), congested=False)
            known = self._known.get(_unchanged(where))
            if isinstance(known, Machine):
                if where != _unchanged(where):
                    raise InputError(f"{known.name}: is compiled, and cannot be changed; its topology can")
                return known
            topology = known or load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
            if where.shared_network is not None:
                if not 0.0 < where.shared_network < 1.0:
                    raise refused("shared_network", "is a share above 0 and below 1", where.shared_network)
                if topology.n_nodes == 1 and where.nodes is None:
                    one = f"is of the network between machines, and {topology.name} is one"
                    raise refused("shared_network", f"{one}; add {mention('nodes')}, for example 2")
                topology = replace(topology, shared_network=where.shared_network)
            if where == unchanged:
                return compile_machine(topology)
            from simulator.network.circumstances import machine_of

            return machine_of(topology, where, self.machine(unchanged))

        return self._machines.once(where, made)

    def group(self, where: Where, gpus: tuple[int, ...] | None) -> Communicator:
        """Return the communicator of *gpus* (None: all) of the machine of *where*; raises InputError."""
        machine = self.machine(where)
        ranks = chosen_gpus(machine, gpus)
        whole = self._machines.once((where, "all"), lambda: Communicator(machine, machine.gpus))
        place = {node: number for number, node in enumerate(machine.gpus)}
        return whole if ranks == machine.gpus else whole.part([place[node] for node in ranks])

    def single(self, question: StepQuestion) -> Place | None:
        """Return the place of the only device of *question*, or None if several take part; raises InputError."""
        places = self.places(question.where, question.software)
        gpus = places.machine.gpus
        if question.device is None and question.helpers and gpus:
            return None
        if question.device is None and len(gpus) > 1 and (question.gpus is None or len(question.gpus) > 1):
            refuse_all(question.device_faults(len(gpus if question.gpus is None else question.gpus)))
            return None
        if question.layout != REPLICAS:
            raise refused("layout", "needs several devices; this step runs on one", question.layout.words)
        name = question.device
        if name is None and question.gpus:
            name = places.machine.nodes[chosen_gpus(places.machine, question.gpus)[0]].name
        return places.find(name, threads=question.threads, library=question.software.cpu_library)

    def router(self, where: Where) -> Router:
        """Return the router of the machine of *where*, with or without GPUs; raises InputError."""
        machine = self.machine(where)
        if machine.gpus:
            return self.group(where, None).router
        return self._machines.once((where, "router"), lambda: Router(machine))

    def places(self, where: Where, software: Software = TODAY) -> Places:
        """Return the devices of the machine of *where* with *software*, and their hosts; raises InputError."""
        from simulator.places import Places

        said = software.libraries, software.gpu_clock_Hz
        known = self.calibrations, self.constants, *said
        return self._kept.once((where, "places", *said), lambda: Places(self.machine(where), *known))

    def device(
        self, where: Where, name: str | None = None, threads: int | None = None, software: Software = TODAY
    ) -> Device:
        """Return the device *name* of the machine of *where* with *software*; raises InputError."""
        return self.places(where, software).find(name, threads=threads).device

    def source(self, question: StepQuestion) -> NetworkSource:
        """Return the function that builds the network of *question* for a batch size; raises InputError."""
        from simulator.workload.find import find_network

        if question.workload in self.networks:
            return self.networks[question.workload]
        # Megatron-LM pads the vocabulary so that each tensor-parallel rank has a multiple of 128 words.
        multiple = _WORDS * question.layout.tp if question.options.framework == "megatron" else 1
        sizes, notes = dict(question.sizes), tuple[str, ...]()
        if str(sizes.get("attention")).startswith("fused-"):
            part = self.places(question.where, question.software).part(question.device)
            sizes["attention"], notes = _attention_there(str(sizes["attention"]), part)
        key = question.workload, tuple(sizes.items()), question.options.trains, multiple, notes
        length, image = sizes.pop("sequence_length", None), sizes.pop("image", None)

        def found() -> NetworkSource:
            source = find_network(
                question.workload,
                training=question.options.trains,
                sequence_length=length,  # type: ignore[arg-type]
                image=image,  # type: ignore[arg-type]
                settings=sizes,
                words_multiple=multiple,
            )
            return replace(source, notes=(*source.notes, *notes))

        return self._machines.once(("source", key), found)

    def network(self, question: StepQuestion) -> Network:
        """Return the network of *question*; raises InputError."""
        return self.source(question).build(question.batch)


def load_machine(topology: str, *, n_nodes: int | None = None, fabric: str | None = None) -> Machine:
    """Return the compiled machine of a file, a built-in name or a part; raises InputError with every fault."""
    return compile_machine(load_topology(topology, n_nodes=n_nodes, fabric=fabric))


def perturbations_of(machine: Machine, slow_links: Sequence[SlowLink]) -> tuple[Perturbation, ...]:
    """Return the perturbations of *machine* by *slow_links* that start or end during a run; raises InputError."""
    if not slow_links:
        return ()
    from simulator.network.circumstances import passing

    return tuple(Perturbation(*each) for each in passing(machine, slow_links))


def refuse_passing(slow_links: Sequence[SlowLink], what: str) -> None:
    """Raise InputError if one of *slow_links* starts or ends during a run, as *what* is priced without one timeline."""
    for slow in slow_links:
        if slow.is_passing:
            why = f"with a time it applies to exchanges and to steps of replicas or shards, not to {what}"
            raise refused("slow_links", why, slow.ends)


def _attention_there(kernel: str, part: GpuPart | CpuPart) -> tuple[str, tuple[str, ...]]:
    """Return the attention on *part* where a kernel is asked (docs/decisions/steps.md), and a note if it is another."""
    if kernel not in _LIMITED:
        return kernel, ()
    known = getattr(part, "compute_capability", None)
    since, is_fourth = math.inf if known is None else float(known), kernel == "fused-fourth"
    other_maker = is_fourth and known is None and getattr(part, "vendor", "") != "nvidia"
    rules = (
        ("fused", isinstance(part, CpuPart), "runs on GPUs; simulated as fused, PyTorch's kernel of CPUs"),
        ("fused", other_maker, "runs on NVIDIA's GPUs from Hopper on; simulated as fused"),
        ("fused", since < _AMPERE and kernel == "fused-first", _BEFORE_FIRST),
        ("fused-softmax", since < _AMPERE, _BEFORE_CUDNN),
        ("fused", since < _HOPPER and is_fourth, "runs from Hopper on; simulated as fused, FlashAttention 2"),
    )
    found = ((runs, (f"attention={kernel}: {why}",)) for runs, holds, why in rules if holds)
    return next(found, (kernel, ()))
