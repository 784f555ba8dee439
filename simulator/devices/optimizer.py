"""The update of the parameters, as passes over all of them.

An optimiser that is one kernel (``fused``) reads parameter, gradient and state and writes parameter and
state.  One that is written in steps over lists of tensors (PyTorch's default, ``foreach``) makes a
pass of each step, with what is between them in memory.
"""

from __future__ import annotations

from typing import Literal

from simulator.devices.kernels import Streaming

__all__ = ["Optimizer", "first_reads", "optimizer_kernels"]

Optimizer = Literal["sgd", "momentum", "adam"]
# Tensors read and written in each pass.
_FUSED = {"sgd": ((2, 1),), "momentum": ((3, 2),), "adam": ((4, 3),)}
_FOREACH = {
    "sgd": ((2, 1),),
    "momentum": ((1, 1), (2, 1), (2, 1)),  # scale the velocity, add the gradient, step
    # mean; scale and add the square; root, correct, add epsilon; step
    "adam": ((2, 1), (1, 1), (2, 1), (1, 1), (1, 1), (1, 1), (3, 1)),
}
# Of the tensors that a pass reads, those that no pass before has read or written.
_FIRST = {"sgd": (2,), "momentum": (1, 1, 1), "adam": (2, 1, 0, 0, 0, 0, 1)}


def first_reads(optimizer: Optimizer, *, fused: bool = False) -> tuple[int, ...]:
    """Return how many tensors each pass reads that none before it has touched, in the order of the kernels."""
    return tuple(reads for reads, _ in _FUSED[optimizer]) if fused else _FIRST[optimizer]


def optimizer_kernels(
    optimizer: Optimizer, elements: int, element_bytes: int = 4, *, fused: bool = False, weight_decay: bool = False
) -> tuple[Streaming, ...]:
    """Return the kernels that update *elements* parameters, weight decay being a pass of its own unless fused."""
    passes = (_FUSED if fused else _FOREACH)[optimizer]
    if weight_decay and not fused:
        passes = ((2, 1), *passes)
    size = elements * element_bytes
    return tuple(Streaming(f"{optimizer}_step", elements, reads * size, writes * size) for reads, writes in passes)
