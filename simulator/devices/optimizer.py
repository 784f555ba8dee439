"""The update of the parameters, as passes over all of them, or over one after the other.

An optimiser that is one kernel (``fused``) reads parameter, gradient and state and writes parameter and
state.  One that is written in steps over lists of tensors (PyTorch's default, ``foreach``) makes a
pass of each step, with what is between them in memory.  One that goes from tensor to tensor does so for each, and
what it looks at on the host, it waits for each time.

``lamb`` is Adam whose step is scaled layer by layer (You et al., arXiv 1904.00962) as apex has it: norms of the
gradients, of the parameters and of their steps, beside two kernels of all tensors (``multi_tensor_lamb.cu``).
``bert-adam`` is Adam of Google's BERT as ported to PyTorch (``BertAdam`` of pytorch-pretrained-bert, which
``run_squad.py`` of NVIDIA/DeepLearningExamples still has where it does not compute in fp16): from tensor to tensor,
each gradient clipped by its own norm, which the host reads.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from simulator.devices.kernels import Streaming

__all__ = ["Optimizer", "TensorPass", "first_reads", "optimizer_kernels", "tensor_passes"]

Optimizer = Literal["sgd", "momentum", "adam", "lamb", "bert-adam"]
# Tensors read and written in each pass.
_LAMB = ((1, 0), (4, 3), (1, 0), (1, 0), (2, 1))  # norm; moments and step; norms of parameters and of steps; apply
_FUSED = {"sgd": ((2, 1),), "momentum": ((3, 2),), "adam": ((4, 3),), "lamb": _LAMB}
_FOREACH = {
    "sgd": ((2, 1),),
    "momentum": ((1, 1), (2, 1), (2, 1)),  # scale the velocity, add the gradient, step
    # mean; scale and add the square; root, correct, add epsilon; step
    "adam": ((2, 1), (1, 1), (2, 1), (1, 1), (1, 1), (1, 1), (3, 1)),
    "lamb": _LAMB,
}
# Of the tensors that a pass reads, those that no pass before has read or written.
_FIRST_FUSED = {"sgd": (2,), "momentum": (3,), "adam": (4,), "lamb": (1, 3, 0, 0, 0)}
_FIRST = {"sgd": (2,), "momentum": (1, 1, 1), "adam": (2, 1, 0, 0, 0, 0, 1), "lamb": _FIRST_FUSED["lamb"]}


# Of a graph that nothing fuses, as Google's BERT has it (AdamWeightDecayOptimizer of google-research/bert): passes, and
# the readings that are the first of a tensor.
_GRAPH = {
    "adam": (
        *((1, 0, 1), (1, 1, 0)),  # gradients clipped by the norm of all,
        *((1, 1, 1), (1, 1, 0), (2, 1, 0)),  # mean,
        *((1, 1, 1), (1, 1, 0), (1, 1, 0), (2, 1, 0)),  # square,
        *((1, 1, 0), (1, 1, 0), (2, 1, 0)),  # root, epsilon, quotient,
        *((1, 1, 1), (2, 1, 0)),  # weight decay,
        *((1, 1, 0), (2, 1, 0)),  # rate of learning, step
        *((1, 1, 0), (1, 1, 0), (1, 1, 0)),  # and three assignments
    ),
}


class TensorPass(NamedTuple):
    """A call of an update from tensor to tensor: how often it reads and writes the tensor, or numbers alone.

    ``first``: the readings that no call before has made.  ``looked_at``: the host reads what it gives, and waits.
    """

    reads: int
    writes: int
    first: int = 0
    looked_at: bool = False


_NUMBER = TensorPass(0, 0)
_BY_TENSOR = {
    "bert-adam": (
        TensorPass(1, 0, first=1),  # the norm of the gradient,
        _NUMBER,  # of a list of one norm,
        _NUMBER,
        _NUMBER,  # what it may be over what it is,
        TensorPass(0, 0, looked_at=True),
        TensorPass(1, 1, first=1),  # mean, scaled,
        TensorPass(2, 1),  # and the gradient added
        TensorPass(1, 1, first=1),  # square, scaled,
        TensorPass(2, 1),  # and added
        TensorPass(1, 1),  # its root,
        TensorPass(1, 1),  # epsilon,
        TensorPass(2, 1),  # quotient
        TensorPass(1, 1, first=1),  # weight decay,
        TensorPass(2, 1),  # added
        TensorPass(1, 1),  # by the rate of learning,
        TensorPass(1, 1),  # its negative,
        TensorPass(2, 1),  # added to the parameter
        TensorPass(0, 1),  # the gradient zeroed for the next step
    ),
}


def first_reads(optimizer: Optimizer, *, fused: bool = False, graph: bool = False) -> tuple[int, ...]:
    """Return how many tensors each pass reads that none before it has touched, in the order of the kernels."""
    if graph and not fused and optimizer in _GRAPH:
        return tuple(first for _, _, first in _GRAPH[optimizer])
    return (_FIRST_FUSED if fused else _FIRST)[optimizer]


def optimizer_kernels(
    optimizer: Optimizer,
    elements: int,
    element_bytes: int = 4,
    *,
    fused: bool = False,
    graph: bool = False,
    weight_decay: bool = False,
) -> tuple[Streaming, ...]:
    """Return the kernels that update *elements* parameters, weight decay being a pass of its own unless fused.

    *graph*: as a graph of operations that nothing fuses has them (TensorFlow), where that is another way.
    """
    passes: tuple[tuple[int, int], ...] = (_FUSED if fused else _FOREACH)[optimizer]
    if graph and not fused and optimizer in _GRAPH:
        passes = tuple((reads, writes) for reads, writes, _ in _GRAPH[optimizer])
    elif weight_decay and not fused:
        passes = ((2, 1), *passes)
    size = elements * element_bytes
    return tuple(Streaming(f"{optimizer}_step", elements, reads * size, writes * size) for reads, writes in passes)


def tensor_passes(optimizer: str) -> tuple[TensorPass, ...]:
    """Return the calls that update one tensor, where *optimizer* goes from one to the next; else none."""
    return _BY_TENSOR.get(optimizer, ())
