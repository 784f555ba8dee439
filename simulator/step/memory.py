"""What device memory a step needs, against what there is."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.devices.gpu.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.step.fusion import groups_of
from simulator.step.precision import casts, has_master, storage_of
from simulator.workload.activations import SavedTensors, peak_forward_bytes, saved_tensors
from simulator.workload.backward import backward_steps, needs_gradient
from simulator.workload.network import Network, block_name, once
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["CONTEXT_BYTES", "MemoryNeed", "memory_need"]

# What the driver, the libraries' code and the framework hold before the first tensor.
# UNVERIFIED: 300 to 800 MB are commonly seen, by generation and libraries.
CONTEXT_BYTES = 500e6
_OPTIMIZER_COPIES = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by what they hold; ``available_bytes`` is the device's memory.

    All at the moment when they are most together.  ``gradients_bytes`` are those of parameters; ``working_bytes`` are
    tensors that live for a moment: gradients on their way back, or in inference the activations that live at once.
    """

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float
    context_bytes: float
    available_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it."""
        held = self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes
        return held + self.activations_bytes + self.working_bytes + self.context_bytes

    @property
    def missing_bytes(self) -> float:
        """By how much it does not fit; 0 where it does."""
        return max(0.0, self.total_bytes - self.available_bytes)

    @property
    def fits(self) -> bool:
        """Whether it fits."""
        return self.missing_bytes == 0.0


@once
def memory_need(
    network: Network, options: StepOptions, device: Device, *, shard: float = 1.0, gathered: float = 1.0
) -> MemoryNeed:
    """Return what a step of *network* needs on *device*, at the moment when it needs most.

    A GPU holds the driver's context besides.  Of all parameters the device keeps and updates a *shard*, and at most
    the share *gathered* is there at once, with its gradients.
    """
    n = network.parameter_count
    element = ELEMENT_BYTES[storage_of(options.precision)]
    twice = casts(options.precision) or has_master(options.precision)
    kept = ELEMENT_BYTES["fp32"] if twice else element
    parameters = n * (kept + (element if twice else 0))
    context = CONTEXT_BYTES if isinstance(device, Gpu) else 0.0
    if not options.trains:
        most = peak_forward_bytes(network, storage_of(options.precision))
        return MemoryNeed(parameters * gathered, 0, 0, 0, most, context, device.memory_bytes)
    optimizer = n * kept * _OPTIMIZER_COPIES[options.optimizer] if options.mode == "train" else 0
    gradient = element if has_master(options.precision) else kept
    backward = _backward_moments(network, options, element, gradient)
    moments = [(float(saved), gradients * gathered, float(working)) for saved, gradients, working in backward]
    if options.mode == "train":
        # At the update the activations are gone, and so are casts; a pass over all parameters writes one copy more.
        copy = n * kept if options.optimizer == "adam" and not options.fused_optimizer else 0
        if has_master(options.precision):  # gradients are there in both formats
            moments.append((0.0, n * (kept + gradient) * shard, copy * shard))
        else:
            moments.append((0.0, n * kept * shard, max(0.0, copy - (parameters - n * kept)) * shard))
    activations, gradients, working = max(moments, key=sum)
    held = parameters * gathered, gradients, optimizer * shard
    return MemoryNeed(*held, activations, working, context, device.memory_bytes)


def _backward_moments(network: Network, options: StepOptions, element: int, kept: int) -> list[tuple[int, int, int]]:
    """Return the bytes of activations, of parameters' gradients and of others at each step of the backward pass."""
    saved = saved_tensors(network, storage_of(options.precision))
    if options.compiled:
        saved = _of_groups(network, saved)
    activations = saved.total_bytes
    going: dict[int, int] = {}
    for number, index in saved.first_keeper.items():
        going[index] = going.get(index, 0) + saved.by_tensor[number]
    if options.recompute:
        activations, going = _of_blocks(network, saved), {}
    gradients = working = 0
    there: dict[int, int] = {}  # gradients of tensors, by number
    moments = [(activations, 0, 0)]
    parameters_there: set[str] = set()
    needed = needs_gradient(network)
    for step in backward_steps(network):
        layer = step.layer
        if layer.output not in there:  # where the pass starts
            there[layer.output] = network.elements[layer.output] * element
            working += there[layer.output]
        for tensor in {tensor for tensor in layer.inputs if needed[tensor]}.difference(there):
            there[tensor] = network.elements[tensor] * element
            working += there[tensor]
        for parameter in layer.parameters:
            if parameter.name not in parameters_there:
                parameters_there.add(parameter.name)
                gradients += parameter.elements * kept
        moments.append((activations, gradients, working))
        working -= there.pop(layer.output)
        if not options.recompute:
            activations -= going.get(step.index, 0) + saved.by_layer[step.index]
    return moments


def _of_groups(network: Network, saved: SavedTensors) -> SavedTensors:
    """Return what is kept where layers are fused: what a group reads and writes; the rest is computed again."""
    by_layer: list[int] = []
    there: set[int] = set()
    for group in groups_of(network):
        there.update(group.reads, group.writes)
        place = len(by_layer)
        alone = len(group.layers) == 1
        by_layer += [saved.by_layer[place + i] if alone else 0 for i in range(len(group.layers))]
    return SavedTensors(
        {t: n for t, n in saved.by_tensor.items() if t in there},
        tuple(by_layer),
        {t: i for t, i in saved.first_keeper.items() if t in there},
    )


def _of_blocks(network: Network, saved: SavedTensors) -> int:
    """Return what is kept where repeated blocks keep their inputs alone, and one at a time is there in full."""
    blocks_of: dict[int, set[str]] = {}
    inside: dict[str, int] = {}
    for layer, besides in zip(network.layers, saved.by_layer, strict=True):
        block = block_name(layer.name)
        inside[block] = inside.get(block, 0) + besides
        for tensor in (*layer.inputs, layer.output):
            blocks_of.setdefault(tensor, set()).add(block)
    kept = 0
    for tensor, n_bytes in saved.by_tensor.items():
        blocks = blocks_of.get(tensor, {""})
        if len(blocks) == 1:
            inside[next(iter(blocks))] = inside.get(next(iter(blocks)), 0) + n_bytes
        else:
            kept += n_bytes
    kept += inside.pop("", 0)
    return kept + max(inside.values(), default=0)
