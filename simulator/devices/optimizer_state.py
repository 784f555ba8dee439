"""What an optimiser keeps of each parameter between updates: :func:`state_tensors`.

Most keep copies of the parameter in the format in which they update it: one velocity, or two moments.

bitsandbytes' Adam keeps its moments in fp32 or in 8 bits (``adam-8bit``; Dettmers et al., "8-bit Optimizers via
Block-wise Quantization", arXiv 2110.02861, section 2), with the largest absolute value of each block of 256 elements in
fp32 (``BLOCKSIZE_2STATE`` of csrc/ops.cu; 2,048 in early versions).  Those of parameters of fewer than 4,096 elements
stay in fp32 (``Optimizer2State.init_state`` in bitsandbytes/optim/optimizer.py).

The ``paged-`` kinds keep moments of parameters of 100,000 elements and more in managed memory (``get_state_buffer``),
which the driver moves to the host where the device lacks room, and back for the update.
"""

from __future__ import annotations

from simulator.questions.options import BITSANDBYTES, Optimizer

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
