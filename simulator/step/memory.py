"""What device memory a step needs, against what there is, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.devices.cpu import Cpu
from simulator.devices.device import Gpu
from simulator.step.options import Policy, StepOptions
from simulator.step.precision import casts, storage_of
from simulator.workload.activations import peak_forward_elements, saved_activations
from simulator.workload.network import Network
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["CONTEXT_BYTES", "MemoryNeed", "largest_batch", "memory_need"]

# What the driver, the libraries' code and the framework hold before the first tensor.
# UNVERIFIED: 300 to 800 MB are commonly seen, by generation and libraries.
CONTEXT_BYTES = 500e6
_OPTIMIZER_COPIES = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by what they hold; ``available_bytes`` is the device's memory.

    ``working_bytes`` are tensors that live for a moment: the gradients that meet at one layer, or in
    inference the activations that live at once.
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


def memory_need(network: Network, options: StepOptions, device: Gpu | Cpu) -> MemoryNeed:
    """Return what a step of *network* needs on *device*; a GPU holds the driver's context besides."""
    n = network.parameter_count
    element = ELEMENT_BYTES[storage_of(options.precision)]
    kept = ELEMENT_BYTES["fp32"] if casts(options.precision) else element
    parameters = n * (kept + (element if casts(options.precision) else 0))
    if options.trains:
        gradients = n * kept
        optimizer = n * ELEMENT_BYTES["fp32"] * _OPTIMIZER_COPIES[options.optimizer] if options.mode == "train" else 0
        activations = saved_activations(network, element_bytes=element, recompute=options.recompute)
        working = 2 * element * _largest_meeting(network)
    else:
        gradients = optimizer = activations = 0
        working = element * peak_forward_elements(network)
    context = CONTEXT_BYTES if isinstance(device, Gpu) else 0.0
    return MemoryNeed(parameters, gradients, optimizer, activations, working, context, device.memory_bytes)


def _largest_meeting(network: Network) -> int:
    """Return the elements of the largest layer's inputs and output together: their gradients live at once."""
    elements = network.elements
    return max((sum(elements[t] for t in {*layer.inputs, layer.output}) for layer in network.layers), default=0)


def largest_batch(build: Callable[[int], Network], batch: int, options: StepOptions, device: Gpu | Cpu) -> int:
    """Return the largest batch below *batch* whose step fits, 0 where none does."""

    def fits(size: int) -> bool:
        return memory_need(build(size), options, device).fits

    low, high = 0, batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def what_would_fit(build: Callable[[int], Network], batch: int, options: StepOptions, device: Gpu | Cpu) -> list[str]:
    """Return changes that would each make the step fit, in words, the gentlest first."""
    changes: list[tuple[str, StepOptions]] = []
    if options.precision in ("fp32", "tf32", "torch"):
        half: Policy = "amp-bf16" if isinstance(device, Gpu) and "bf16" in device.peak_flops_per_s else "amp-fp16"
        changes.append((f"--precision {half}", replace(options, precision=half)))
    if options.trains and not options.recompute:
        changes.append(("--recompute", replace(options, recompute=True)))
    if options.mode == "train" and options.optimizer == "adam":
        changes.append(("--optimizer momentum", replace(options, optimizer="momentum")))
    network = build(batch)
    found = [words for words, changed in changes if memory_need(network, changed, device).fits]
    size = largest_batch(build, batch, options, device)
    if size:
        found.append(f"--batch {size}")
    need = memory_need(network, options, device)
    found.append(f"a device with {need.total_bytes / 1e9:.0f} GB")
    return found
