"""The device memory that a step needs, and the memory that is available."""

from __future__ import annotations

from collections import Counter

from simulator.constants import constants
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import Optimizer, StepOptions
from simulator.records import dataclass, fields, replace
from simulator.step.conversions import nvfp4_weights, quantised_layers
from simulator.step.fusion import run_groups
from simulator.step.precision import casts, has_master, storage_of, weight_bytes
from simulator.step.recompute import reruns_of
from simulator.workload.activations import SavedTensors, peak_forward_bytes, saved_tensors
from simulator.workload.backward import backward_steps, needs_gradient
from simulator.workload.network import Network, once
from simulator.workload.precision import ELEMENT_BYTES, NVFP4_BYTES
from simulator.workload.split.experts import expert_parameters

# Tensors of the parameters' size in the optimiser state.
OPTIMIZER_COPIES: dict[Optimizer, int] = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2, "lamb": 2}
OPTIMIZER_COPIES |= {"adam-loop": 2, "bert-adam": 2}


@constants("residents")
@dataclass(frozen=True, slots=True)
class Residents:
    """Constants of what stands in memory besides tensors."""

    context_bytes: float


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by use, at the moment of the highest total; ``available_bytes`` is the device's memory.

    ``gradients_bytes`` are gradients of parameters.  ``working_bytes`` are short-lived tensors: gradients of
    activations or, in inference, the activations that are live at once.
    """

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float
    context_bytes: float
    available_bytes: float

    def times(self, count: int) -> MemoryNeed:
        """Return the need of *count* processes, together."""
        names = [field.name for field in fields(self) if field.name != "available_bytes"]
        return replace(self, **{name: count * getattr(self, name) for name in names}) if count > 1 else self

    @property
    def by_use(self) -> dict[str, float]:
        """Bytes of each use, in words, that needs any."""
        words = ("parameters", "gradients", "optimiser", "activations", "working", "driver")
        found = zip(words, (getattr(self, field.name) for field in fields(self)), strict=False)
        return {word: n_bytes for word, n_bytes in found if n_bytes}

    @property
    def total_bytes(self) -> float:
        """Bytes of all uses."""
        held = self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes
        return held + self.activations_bytes + self.working_bytes + self.context_bytes

    @property
    def missing_bytes(self) -> float:
        """Bytes by which the need exceeds the available memory; 0 if it fits."""
        return max(0.0, self.total_bytes - self.available_bytes)

    @property
    def fits(self) -> bool:
        """Whether the need fits into the available memory."""
        return self.missing_bytes == 0.0

    @property
    def allocated_bytes(self) -> float:
        """Bytes of tensors, as ``torch.cuda.max_memory_allocated`` counts them: all but the driver's context."""
        return self.total_bytes - self.context_bytes

    @property
    def reserved_bytes(self) -> float:
        """Bytes that the framework's allocator holds, as ``torch.cuda.max_memory_reserved`` counts them."""
        return self.allocated_bytes

    @property
    def process_bytes(self) -> float:
        """Bytes of the process, as ``nvidia-smi`` counts them."""
        return self.total_bytes


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of parameters, gradients and optimiser state that one device holds.

    ``parameters`` and ``gradients`` are the shares held while computing.  ``kept_gradients`` is the share of the
    gradients held until the update; ``updated`` the share of the optimiser state and of the fp32 copy of the
    parameters that a ``master-`` policy updates; ``cast_from`` the share of the fp32 parameters that are cast at each
    step, which are the parameters themselves.  ``in_flight`` is the number of micro-batches whose activations are saved
    at once.  ``accumulates``: micro-batches add to earlier gradients, which stay in memory throughout.
    """

    parameters: float = 1.0
    gradients: float = 1.0
    kept_gradients: float = 1.0
    updated: float = 1.0
    cast_from: float = 1.0
    in_flight: float = 1.0
    accumulates: bool = False


ALL = Shares()


@dataclass(frozen=True, slots=True)
class NetworkMemory:
    """The memory that a network takes on a device, before it is divided into shares.

    ``moments`` lists for each step of the backward pass the bytes of activations, of gradients of parameters, and of
    other gradients.  ``most_forward_bytes`` is the peak of a forward pass alone.  ``of_experts`` and
    ``trained_of_experts`` are the parts of ``parameter_count`` and ``trained_count`` in experts; ``largest`` is the
    size of the largest trained parameter, ``quantised`` the weights that are kept in nvfp4 besides, by rows and
    transposed.  All counts are elements.
    """

    parameter_count: int
    trained_count: int
    moments: tuple[tuple[int, int, int], ...] = ()
    most_forward_bytes: int = 0
    of_experts: int = 0
    trained_of_experts: int = 0
    largest: int = 0
    quantised: int = 0


@once
def memory_need(network: Network, options: StepOptions, device: Device, shares: Shares = ALL) -> MemoryNeed:
    """Return the memory that a step of *network* needs on *device*, at its peak.

    On a GPU this includes the driver's context.  *shares*: the device's shares, where several devices divide the state.
    """
    return need_of(held_in(network, options), options, device, shares)


def held_in(network: Network, options: StepOptions) -> NetworkMemory:
    """Return the memory that a step of *network* takes, before it is divided into shares."""
    names = expert_parameters(network)
    experts = [p for p in network.parameters if p.name in names]
    held = NetworkMemory(
        network.parameter_count,
        network.trained_count,
        of_experts=sum(p.elements for p in experts),
        trained_of_experts=sum(p.elements for p in experts if p.trained),
        largest=max((p.elements for p in network.parameters if p.trained), default=0),
        quantised=nvfp4_weights(network, options.precision),
    )
    if not options.trains:
        return replace(held, most_forward_bytes=peak_forward_bytes(network, storage_of(options.precision)))
    element, kept = _element_bytes(options)
    gradient = element if has_master(options.precision) else kept
    return replace(held, moments=tuple(_backward_moments(network, options, element, gradient)))


def _element_bytes(options: StepOptions) -> tuple[int, int]:
    """Return the bytes of an element in computation, and of an element that the optimiser updates."""
    element = ELEMENT_BYTES[storage_of(options.precision)]
    twice = casts(options.precision) or has_master(options.precision)
    return element, ELEMENT_BYTES["fp32"] if twice else element


def need_of(held: NetworkMemory, options: StepOptions, device: Device, shares: Shares = ALL) -> MemoryNeed:
    """Return the memory need on *device* of a step that holds *held*; otherwise as :func:`memory_need`."""
    n = held.trained_count
    _, kept = _element_bytes(options)
    wide = shares.cast_from if casts(options.precision) else shares.updated if has_master(options.precision) else 0.0
    weights = held.parameter_count * weight_bytes(options.precision)
    weights += held.quantised * 2 * NVFP4_BYTES
    parameters = weights * shares.parameters + n * kept * wide
    context = device.constants(Residents).context_bytes if isinstance(device, Gpu) else 0.0
    if not options.trains:
        return MemoryNeed(parameters, 0, 0, 0, held.most_forward_bytes, context, device.memory_bytes)
    optimizer = n * kept * OPTIMIZER_COPIES[options.optimizer] * shares.updated if options.mode == "train" else 0
    activations, gradients, working = max(moments_of(held, options, shares), key=sum)
    return MemoryNeed(parameters, gradients, optimizer, activations, working, context, device.memory_bytes)


def moments_of(held: NetworkMemory, options: StepOptions, shares: Shares = ALL) -> list[tuple[float, float, float]]:
    """Return for each step of the backward pass the bytes of activations, gradients of parameters, and other data.

    In training, the last entry is the update.  Sums of gradients in a copy in fp32 stay from step to step, whole even
    where ranks divide the optimiser's state, which reads them in place (DeepSpeed, ``BF16_Optimizer``).
    """
    n = held.trained_count
    sums = n * ELEMENT_BYTES["fp32"] if options.accumulation == "fp32" else 0
    element, kept = _element_bytes(options)
    backward = held.moments
    waiting = backward[0][0] * (shares.in_flight - 1.0)  # activations of later micro-batches
    summed = n * (element if has_master(options.precision) else kept) * shares.kept_gradients
    earlier = summed if shares.accumulates else 0.0
    moments = [
        (saved + waiting, max(grads * shares.gradients, earlier) + sums, float(working))
        for saved, grads, working in backward
    ]
    if options.mode != "train":
        return moments
    # In the update, activations and casts are freed; a pass over all parameters writes one more copy.
    copy = n * kept * shares.updated if options.optimizer == "adam" and not options.fused_optimizer else 0.0
    if has_master(options.precision):  # gradients exist in both formats
        moments.append((0.0, (sums or n * kept * shares.updated) + n * element * shares.kept_gradients, copy))
    else:
        casted = n * element * shares.parameters if casts(options.precision) else 0.0
        moments.append((0.0, n * kept * shares.kept_gradients + sums, max(0.0, copy - casted)))
    return moments


def _backward_moments(network: Network, options: StepOptions, element: int, kept: int) -> list[tuple[int, int, int]]:
    """Return for each backward step the bytes of activations, gradients of parameters, and other gradients."""
    saved = saved_tensors(network, storage_of(options.precision), quantised_layers(network, options.precision))
    if options.compiled:
        saved = saved_by_groups(network, saved, options)
    reruns = reruns_of(network, options)
    restored = frozenset[int]().union(*(rerun.tensors for rerun in reruns))
    places = {place for rerun in reruns for place in rerun.layers}
    again = saved.part(restored.__contains__, (n * (place in places) for place, n in enumerate(saved.by_layer)))
    rest = (n - other for n, other in zip(saved.by_layer, again.by_layer, strict=True))
    saved = saved.part(lambda tensor: tensor not in again.by_tensor, rest)
    returning: Counter[int] = Counter()  # bytes that exist again from the backward pass of a layer on
    for rerun in reruns:
        tensors = sum(again.by_tensor.get(tensor, 0) for tensor in rerun.tensors)
        returning[rerun.before] += tensors + sum(again.by_layer[place] for place in rerun.layers)
    activations, going, inside = saved.total_bytes, saved.goes_with, again.goes_with
    gradients = working = 0
    there: dict[int, int] = {}  # bytes of gradients of live tensors, by number
    moments = [(activations, 0, 0)]
    due = sorted(returning)
    parameters_there: set[str] = set()
    needed = needs_gradient(network)
    for step in backward_steps(network):
        layer = step.layer
        while due and due[-1] >= step.index:
            activations += returning[due.pop()]
        if layer.output not in there:  # the start of the backward pass
            there[layer.output] = network.elements[layer.output] * element
            working += there[layer.output]
        for tensor in {tensor for tensor in layer.inputs if needed[tensor]}.difference(there):
            there[tensor] = network.elements[tensor] * element
            working += there[tensor]
        for parameter in layer.trained:
            if parameter.name not in parameters_there:
                parameters_there.add(parameter.name)
                gradients += parameter.elements * kept
        moments.append((activations, gradients, working))
        working -= there.pop(layer.output)
        activations -= going[step.index] + inside[step.index]
    return moments


def saved_by_groups(network: Network, saved: SavedTensors, options: StepOptions) -> SavedTensors:
    """Return the saved activations if layers are fused: the inputs and results of groups; the rest is recomputed."""
    by_layer = [0] * len(network.layers)
    there: set[int] = set()
    for group in run_groups(network, options):
        there.update(group.reads, group.writes)
        if len(group.places) == 1:
            by_layer[group.places[0]] = saved.by_layer[group.places[0]]
    return saved.part(there.__contains__, by_layer)
