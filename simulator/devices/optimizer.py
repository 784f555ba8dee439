"""The optimiser's update, as passes over all parameters at once or over one tensor after the other; and its state.

A ``fused`` optimiser is one kernel: it reads parameter, gradient and state, and writes parameter and state.  One
written in steps over lists of tensors (PyTorch's default, ``foreach``) makes one pass per step, with intermediate
results in memory.  One that loops over tensors repeats its passes for each tensor and waits each time the host reads a
value.

``lamb`` is Adam with steps scaled per layer (You et al., arXiv 1904.00962), as in apex: norms of the gradients, of the
parameters and of their steps, and two kernels over all tensors (``multi_tensor_lamb.cu``).  ``adam-loop`` is PyTorch's
Adam with ``foreach=False``, its default before 2.0 (``_single_tensor_adam``).  ``bert-adam`` is the Adam of Google's
BERT as ported to PyTorch (``BertAdam`` of pytorch-pretrained-bert, which NVIDIA's ``run_squad.py`` still uses without
fp16): it loops over tensors and clips each gradient by its own norm, which the host reads.

Between updates most optimisers keep copies of each parameter in the format in which they update it: one velocity, or
two moments.  bitsandbytes' Adam keeps its moments in fp32 or in 8 bits (``adam-8bit``; Dettmers et al., "8-bit
Optimizers via Block-wise Quantization", arXiv 2110.02861, section 2), with the largest absolute value of each block of
256 elements in fp32 (``BLOCKSIZE_2STATE`` of csrc/ops.cu; 2,048 in early versions).  Those of parameters of fewer than
4,096 elements stay in fp32 (``Optimizer2State.init_state`` in bitsandbytes/optim/optimizer.py).  The ``paged-`` kinds
keep moments of parameters of 100,000 elements and more in managed memory (``get_state_buffer``), which the driver moves
to the host where the device lacks room, and back for the update.  There is one kernel for each tensor, which reads and
writes the moments as they are kept, and for which the host waits (``sync_gpu`` in ``Optimizer8bit.step``).

``optimizers.json`` has the passes of each, in the order of the kernels; ``graph`` is the graph of Google's BERT
(AdamWeightDecayOptimizer of google-research/bert) without fusion.
"""

from typing import NamedTuple

from simulator.package_data import own_data
from simulator.questions.options import BITSANDBYTES, Optimizer
from simulator.workload.kernels import Streaming


class TensorPass(NamedTuple):
    """A pass of an update over all tensors, or a call for one: how often it reads and writes (0, 0: scalars only).

    ``first``: the reads that no earlier call has made.  ``looked_at``: the host reads the result, and waits for it.
    ``with_state``: the call also reads and writes what the optimiser keeps, which may be in fewer bits.
    """

    reads: int
    writes: int
    first: int = 0
    looked_at: bool = False
    with_state: bool = False


_WRITTEN = own_data("simulator.devices", "optimizers.json")
_READ = {
    way: {
        name: tuple(TensorPass(**{key: value for key, value in each.items() if key != "what"}) for each in passes)
        for name, passes in by_name.items()
    }
    for way, by_name in _WRITTEN.items()
}
_BY_TENSOR: dict[str, tuple[TensorPass, ...]] = {
    **_READ["by_tensor"],
    **dict.fromkeys(BITSANDBYTES, (TensorPass(2, 1, first=2, looked_at=True, with_state=True),)),
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
    """Return the kernels that update *elements* parameters.

    *graph*: as a graph of operations without fusion runs them (TensorFlow), where that differs.
    """
    size, name = elements * element_bytes, f"{optimizer}_step"
    passes = _passes(optimizer, fused, graph)
    return tuple(Streaming(name, elements, each.reads * size, each.writes * size) for each in passes)


def tensor_passes(optimizer: Optimizer) -> tuple[TensorPass, ...]:
    """Return the calls that update one tensor where *optimizer* loops over tensors; empty for other optimisers."""
    return _BY_TENSOR.get(optimizer, ())


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
