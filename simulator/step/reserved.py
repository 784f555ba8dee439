"""What a process holds beyond tensors: gaps, workspaces and the driver's context (docs/decisions/step-models.md)."""

from collections.abc import Sequence
from itertools import zip_longest
from math import ceil, inf
from typing import Any

from simulator.constants import Values
from simulator.devices.gpu import Gpu
from simulator.devices.optimizer import state_tensors
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.questions.where import Month, Software, Version
from simulator.records import dataclass
from simulator.step.allocator import CachingAllocator, MemoryBlock, OutOfMemoryError
from simulator.step.moments import Tape, TensorEvent, tape_of
from simulator.step.precision import storage_of, updated_bytes, weight_bytes
from simulator.workload.network import Network, block_name, once, packed_weights, unit_elements
from simulator.workload.precision import ELEMENT_BYTES, PACKED

_STEPS = 2


@dataclass(frozen=True, slots=True)
class RankState:
    """What a device holds besides a pass's tensors, in bytes an element of each parameter, or in shares."""

    weight_bytes: tuple[float, ...]  # each of several tensors, from the start
    frozen_bytes: float  # from the start
    updated: float  # share of the optimiser's state, from the first update
    update_bytes: float  # in updates alone
    buffer_bytes: int  # of one buffer, from the start
    gathered_bytes: float  # of units while they run; 0: none
    kept_gradients: float  # share that stays until the update
    in_flight: float  # micro-batches that are saved at once
    accumulates: bool  # more micro-batches follow
    working_bytes: int = 0  # of an update of a single tensor


@once
def reserved_and_allocated(
    network: Network, options: StepOptions, graded_element: int, held: RankState, most_bytes: float = inf
) -> tuple[int, int]:
    """Return the most bytes that the allocator holds and has in use in the first steps, of *most_bytes* that it may.

    Where these are too little, the first are those that the first refused request would lead to.
    """
    tape = tape_of(network, options, graded_element, in_blocks=held.gathered_bytes > 0.0)
    allocator = CachingAllocator(most_bytes, expandable=options.expandable_segments)
    try:
        replay = _Replay(network, options, tape, held, allocator)
        for _ in range(_STEPS):
            replay.step()
    except OutOfMemoryError as error:
        return error.needed_bytes, allocator.most_allocated_bytes
    return allocator.most_reserved_bytes, allocator.most_allocated_bytes


class _Replay:
    def __init__(
        self, network: Network, options: StepOptions, tape: Tape, held: RankState, allocator: CachingAllocator
    ) -> None:
        self.allocator, self._tape, self._held, self._options = allocator, tape, held, options
        self._network = network
        self._trained = [p.elements for p in network.parameters if p.trained]
        self._units = unit_elements(network) if held.gathered_bytes else {}
        stored = ELEMENT_BYTES[storage_of(options.precision)]
        self._casts = not self._units or held.gathered_bytes > stored  # else there is nothing to cast
        self._names = [block_name(layer.name) for layer in network.layers]
        self._gathered: dict[str, MemoryBlock] = {}
        self._gradients: dict[int, MemoryBlock] = {}
        self._updated = False
        packed, elsewhere = packed_weights(network), 1.0 - held.frozen_bytes / weight_bytes(options.precision)
        for parameter in network.parameters:
            n, whole = parameter.elements, packed.get(parameter.name)
            for each in held.weight_bytes if parameter.trained else (held.frozen_bytes,):
                self._take(n * each if whole is None else whole - n / PACKED * elsewhere)
        self._take(held.buffer_bytes)

    def _take(self, n_bytes: float) -> MemoryBlock | None:
        return self.allocator.take(ceil(n_bytes)) if n_bytes > 0 else None

    def _give_all(self, blocks: dict[Any, MemoryBlock]) -> None:
        for block in blocks.values():
            self.allocator.give(block)
        blocks.clear()

    def step(self) -> None:
        flying: list[dict[int, MemoryBlock]] = []
        most = ceil(self._held.in_flight)
        for number in range(most + self._held.accumulates):
            flying.append({})
            self._play(flying[-1], self._tape.forward)
            if number + 1 >= most:
                self._play_back(flying.pop(0))
        for one in flying:
            self._play_back(one)
        if self._options.mode == "train":
            self._update()
        self._give_all(self._gradients)

    def _play_back(self, blocks: dict[int, MemoryBlock]) -> None:
        """Play a backward pass; what is left are gradients that go to another stage."""
        self._play(blocks, self._tape.backward)
        self._give_all(blocks)

    def _play(self, blocks: dict[int, MemoryBlock], events: Sequence[TensorEvent]) -> None:
        """Take and give what *events* do; *blocks* are those of their micro-batch, by number."""
        take, give = self.allocator.take, self.allocator.give
        graded, before = 0, -2
        for number, use, n_bytes, place in events:
            if self._units and place != before:
                before = place
                self._gather(self._names[place] if place >= 0 else "")
            if use == "graded":
                graded += 1
                self._grade(graded, n_bytes)
            elif use == "casts" and not self._casts:
                continue
            elif n_bytes:
                blocks[number] = take(n_bytes)
            else:
                give(blocks.pop(number))
        self._give_all(self._gathered)

    def _gather(self, name: str) -> None:
        """Gather the unit *name* if it is not there; the one before the last goes."""
        if name in self._gathered or not self._units.get(name):
            return
        blocks = [each for each in self._gathered if each]
        if len(blocks) > 1 and name:
            self.allocator.give(self._gathered.pop(blocks[0]))
        self._gathered[name] = self.allocator.take(ceil(self._units[name] * self._held.gathered_bytes))

    def _grade(self, number: int, n_bytes: int) -> None:
        """Take the gradient of a parameter; it stays, or is added to an earlier one, or its share stays."""
        block = self.allocator.take(n_bytes)
        if number not in self._gradients:
            if self._held.kept_gradients == 1.0:
                self._gradients[number] = block
                return
            if (kept := self._take(n_bytes * self._held.kept_gradients)) is not None:  # else the host has them
                self._gradients[number] = kept
        self.allocator.give(block)

    def _update(self) -> None:
        states = [] if self._updated else states_of(self._network, self._options)
        self._updated = True
        for n_bytes in (size for sizes in zip_longest(*states, fillvalue=0) for size in sizes):
            self._take(n_bytes * self._held.updated)
        sizes = [elements * self._held.update_bytes for elements in self._trained], [self._held.working_bytes]
        for blocks in ([self._take(n_bytes) for n_bytes in each] for each in sizes):
            for block in filter(None, blocks):
                self.allocator.give(block)


def states_of(network: Network, options: StepOptions, *, paged: bool = False) -> list[tuple[int, ...]]:
    """Return the bytes of each tensor that the optimiser keeps of each trained parameter; of Muon's matrices one."""
    rule, element, names = options.optimizer, updated_bytes(options.precision), frozenset[str]()
    if rule == "muon":
        from simulator.step.muon import orthogonalised

        names = orthogonalised(network)
    trained = [("momentum" if p.name in names else rule, p.elements) for p in network.parameters if p.trained]
    return [state_tensors(each, elements, element, paged=paged) for each, elements in trained]


# aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize): ":4096:2:16:8", 32 MiB on Hopper and Blackwell;
# hipBLAS has 32 MiB, on gfx94x and gfx95x 128.
_USUAL = (2 * 4096 + 8 * 16) * 1024
_LARGE = 32 * 2**20
_LARGE_ON = {"hopper": _LARGE, "blackwell": _LARGE, "cdna3": 4 * _LARGE, "cdna4": 4 * _LARGE}


def workspace_bytes(device: Device, options: StepOptions) -> float:
    """Return the bytes of cuBLAS's workspaces, one for each pass's thread; 0 on CPUs and without PyTorch."""
    if not isinstance(device, Gpu) or options.framework in ("tensorflow", "caffe"):
        return 0.0
    each = _LARGE_ON.get(device.generation.partition(" ")[0], _LARGE if device.vendor == "amd" else _USUAL)
    return float(each * (2 if options.mode in ("train", "backward") else 1))


class Residents(Values, file="residents"):
    """Constants of what stands in memory besides tensors."""

    def of(self, gpu: Gpu, options: StepOptions, software: Software) -> float:
        """Return the bytes of the context of *gpu* with *software*."""
        month = software.libraries
        loads_all = _EAGER[0] <= software.nccl < _EAGER[1] or (month and _EAGER_MONTHS[0] <= month < _EAGER_MONTHS[1])
        if not loads_all or gpu.vendor != "nvidia" or options.framework in ("tensorflow", "caffe"):
            return self.context_bytes
        return self.eager_ampere_context_bytes if gpu.traits.kernels == "ampere" else self.eager_context_bytes


# PyTorch 1.0 (December 2018, with NCCL 2.3) to 1.12 load all kernels of a library at once; 1.13 with CUDA 11.7 (October
# 2022, with NCCL 2.14) does not.
_EAGER: tuple[Version, Version] = (2, 3), (2, 14)
_EAGER_MONTHS: tuple[Month, Month] = (2018, 12), (2022, 10)
