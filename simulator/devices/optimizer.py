"""The optimiser's update, as passes (``optimizers.json``), and its state (docs/decisions/kernels.md)."""

from typing import NamedTuple

from simulator.questions.options import BITSANDBYTES, Framework, Optimizer
from simulator.records import own_data
from simulator.workload.kernels import Streaming


class TensorPass(NamedTuple):
    """A pass of an update over all tensors, or a call for one: how often it reads and writes (0, 0: scalars only)."""

    reads: int
    writes: int
    first: int = 0  # reads that no earlier call has made
    looked_at: bool = False  # the host reads the result, and waits for it
    with_state: bool = False  # also reads and writes what the optimiser keeps, perhaps in fewer bits
    half_reads: int = 0  # of tensors in bf16
    half_writes: int = 0
    called: bool = True  # by itself, and not by the next call


_WRITTEN = own_data("simulator.devices", "optimizers.json")
_READ = {
    way: {
        name: tuple(TensorPass(**{key: value for key, value in each.items() if key != "what"}) for each in passes)
        for name, passes in by_name.items()
    }
    for way, by_name in _WRITTEN.items()
}


def _passes(optimizer: Optimizer, fused: bool, graph: bool) -> tuple[TensorPass, ...]:
    if graph and not fused and optimizer in _READ["graph"]:
        return _READ["graph"][optimizer]
    return _READ["fused" if fused else "foreach"][optimizer]


def first_reads(optimizer: Optimizer, *, fused: bool = False, graph: bool = False) -> tuple[int, ...]:
    """Return the tensors that each pass reads and no earlier pass has touched, in the order of the kernels."""
    return tuple(each.first for each in _passes(optimizer, fused, graph))


def optimizer_kernels(
    optimizer: Optimizer, elements: int, element_bytes: int = 4, *, fused: bool = False, graph: bool = False
) -> tuple[Streaming, ...]:
    """Return the kernels that update *elements* parameters; *graph*: as TensorFlow's graphs do, without fusion."""
    size, name = elements * element_bytes, f"{optimizer}_step"
    passes = _passes(optimizer, fused, graph)
    return tuple(Streaming(name, elements, each.reads * size, each.writes * size) for each in passes)


def tensor_passes(optimizer: Optimizer) -> tuple[TensorPass, ...]:
    """Return the calls that update one tensor where *optimizer* loops over tensors; empty for other optimisers."""
    return _READ["by_tensor"].get(optimizer, ())


def matrix_passes(framework: Framework) -> tuple[TensorPass, ...]:
    """Return Muon's calls for one matrix besides its products: torch's, or emerging_optimizers' of Megatron-LM."""
    return _READ["by_matrix"]["megatron" if framework == "megatron" else "pytorch"]


# -- what is kept between updates ------------------------------------------------------


_COPIES: dict[Optimizer, int] = {"none": 0, "sgd": 0, "momentum": 1}
_IN_8_BITS: tuple[Optimizer, ...] = ("adam-8bit", "paged-adam-8bit")
_PAGED: tuple[Optimizer, ...] = ("paged-adam", "paged-adam-8bit")
_SMALLEST_IN_8_BITS = 4096
_SMALLEST_PAGED = 100_000
_BLOCK, _WIDE_BYTES = 256, 4


def state_copies(optimizer: Optimizer) -> int:
    """Return the number of values that *optimizer* keeps of each element."""
    return _COPIES.get(optimizer, 2)


def state_tensors(optimizer: Optimizer, elements: int, element_bytes: int, *, paged: bool = False) -> tuple[int, ...]:
    """Return the bytes of each tensor that *optimizer* keeps of a parameter of *elements* elements.

    *element_bytes*: those of an element that is updated.  *paged*: with what is in managed memory, too.
    """
    copies = state_copies(optimizer)
    largest: tuple[int, ...] = ()
    element_bytes = _WIDE_BYTES if optimizer in BITSANDBYTES else element_bytes
    if optimizer in _IN_8_BITS and elements >= _SMALLEST_IN_8_BITS:
        element_bytes = 1
        largest = (-(-elements // _BLOCK) * _WIDE_BYTES,) * copies
    elsewhere = optimizer in _PAGED and elements >= _SMALLEST_PAGED and not paged
    return (() if elsewhere else (elements * element_bytes,) * copies) + largest
