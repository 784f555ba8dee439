"""What device memory a step needs, against what there is, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.devices.device import Gpu
from simulator.devices.predict import Device
from simulator.step.fusion import groups_of
from simulator.step.options import Policy, StepOptions
from simulator.step.precision import casts, storage_of
from simulator.workload.activations import SavedTensors, peak_forward_bytes, saved_tensors
from simulator.workload.network import Network, block_name
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


def memory_need(network: Network, options: StepOptions, device: Device) -> MemoryNeed:
    """Return what a step of *network* needs on *device*; a GPU holds the driver's context besides."""
    n = network.parameter_count
    element = ELEMENT_BYTES[storage_of(options.precision)]
    kept = ELEMENT_BYTES["fp32"] if casts(options.precision) else element
    parameters = n * (kept + (element if casts(options.precision) else 0))
    if options.trains:
        gradients = n * kept
        optimizer = n * kept * _OPTIMIZER_COPIES[options.optimizer] if options.mode == "train" else 0
        activations = _kept_bytes(network, options)
        working = 2 * element * _largest_meeting(network)
    else:
        gradients = optimizer = activations = 0
        working = peak_forward_bytes(network, storage_of(options.precision))
    context = CONTEXT_BYTES if isinstance(device, Gpu) else 0.0
    return MemoryNeed(parameters, gradients, optimizer, activations, working, context, device.memory_bytes)


def _kept_bytes(network: Network, options: StepOptions) -> int:
    """Return the bytes of activations that wait for the backward pass."""
    saved = saved_tensors(network, storage_of(options.precision))
    if options.compiled:
        saved = _of_groups(network, saved)
    return _of_blocks(network, saved) if options.recompute else saved.total_bytes


def _of_groups(network: Network, saved: SavedTensors) -> SavedTensors:
    """Return what is kept where layers are fused: what a group reads and writes; the rest is computed again."""
    by_layer: list[int] = []
    there: set[int] = set()
    for group in groups_of(network):
        there.update(group.reads, group.writes)
        place = len(by_layer)
        alone = len(group.layers) == 1
        by_layer += [saved.by_layer[place + i] if alone else 0 for i in range(len(group.layers))]
    return SavedTensors({t: n for t, n in saved.by_tensor.items() if t in there}, tuple(by_layer))


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


def _largest_meeting(network: Network) -> int:
    """Return the elements of the largest layer's inputs and output together: their gradients live at once."""
    elements = network.elements
    return max((sum(elements[t] for t in {*layer.inputs, layer.output}) for layer in network.layers), default=0)


def largest_batch(build: Callable[[int], Network], batch: int, options: StepOptions, device: Device) -> int:
    """Return the largest batch below *batch* whose step fits, 0 where none does.

    Memory is close to a straight line over the batch, so that the place is guessed, then narrowed.
    """

    def excess(size: int) -> float:
        need = memory_need(build(size), options, device)
        return need.total_bytes - need.available_bytes

    low, high = 1, batch
    if batch < 2 or excess(low) > 0:
        return 0
    below, above = excess(low), excess(high)
    trials = 0
    while high - low > 1:
        trials += 1
        guess = (low + high) // 2  # each third time, whatever the line is like
        if trials % 3 and above > below:
            guess = low + int((high - low) * below / (below - above))
        middle = min(max(guess, low + 1), high - 1)
        found = excess(middle)
        if found <= 0:
            low, below = middle, found
        else:
            high, above = middle, found
    return low


def what_would_fit(build: Callable[[int], Network], batch: int, options: StepOptions, device: Device) -> list[str]:
    """Return changes that would each make the step fit, in words, the gentlest first.

    Where no single change does, the first of them together that do, with a smaller batch if it must be.
    """
    changes = _savings(options, device)
    network = build(batch)
    found = [words for words, changed in changes if memory_need(network, changed, device).fits]
    size = largest_batch(build, batch, options, device)
    if size:
        found.append(f"--batch {size}")
    if not found:
        found += _together(build, batch, options, device)
    need = memory_need(network, options, device)
    larger = f"a device with {need.total_bytes / 1e9:.0f} GB"
    least = min(
        (memory_need(network, changed, device).total_bytes, words) for words, changed in [*changes, ("", options)]
    )
    if least[0] < 0.8 * need.total_bytes:
        larger += f", or {least[0] / 1e9:.0f} GB with {least[1]}"
    return [*found, larger]


def _savings(options: StepOptions, device: Device) -> list[tuple[str, StepOptions]]:
    """Return the changes of *options* that save memory, each with its words."""
    changes: list[tuple[str, StepOptions]] = []
    if options.trains and not options.recompute:
        changes.append(("--recompute", replace(options, recompute=True)))
    if options.precision in ("fp32", "tf32", "torch"):
        half: Policy = "amp-bf16" if isinstance(device, Gpu) and "bf16" in device.peak_flops_per_s else "amp-fp16"
        changes.append((f"--precision {half}", replace(options, precision=half)))
    if options.mode == "train" and options.optimizer == "adam":
        changes.append(("--optimizer momentum", replace(options, optimizer="momentum")))
    return changes


def _together(build: Callable[[int], Network], batch: int, options: StepOptions, device: Device) -> list[str]:
    words: list[str] = []
    for _ in range(3):
        changes = _savings(options, device)
        if not changes:
            break
        word, options = changes[0]
        words.append(word)
        size = (
            batch if memory_need(build(batch), options, device).fits else largest_batch(build, batch, options, device)
        )
        if size:
            return [" ".join([*words, *([f"--batch {size}"] if size < batch else [])])]
    return []
