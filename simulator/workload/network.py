"""A network: operators in the order of the forward pass, and the tensors between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, ParamSpec, TypeVar

from simulator.workload.operators import Embedding, Linear, Operator

__all__ = ["Layer", "Network", "Parameter", "Part", "Split", "block_name", "once", "shape_of"]

Part = Literal["attention", "feed-forward", "experts"]
Split = Literal["columns", "rows"]

P = ParamSpec("P")
T = TypeVar("T")

_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight or a bias, trained or frozen.  Layers that name the same parameter share it."""

    name: str
    elements: int
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator at its place.

    ``inputs`` and ``output`` number the tensors it reads and the one it writes; a view
    (reshape, transposition that moves nothing) has the number of what it views.

    Of transformers, ``part`` says where in its block a layer stands: in attention from the projections of queries,
    keys and values to that of the output; in the feed-forward layer; or among the experts, from where tokens are
    copied to theirs to where the results are added up again (what lies between works on ``rows`` of tokens and
    choices).  ``split`` says how the weight of a linear layer can be divided over ranks (Megatron-LM, arXiv 1909.08053,
    section 3): by ``columns``, each rank computes some of the outputs (whole heads in attention), or by ``rows``,
    each has some of the inputs, and the results of all are summed.  What stands between a layer of columns and the
    next of rows is divided likewise; None is computed whole by each.
    """

    name: str
    operator: Operator
    inputs: tuple[int, ...]
    output: int
    parameters: tuple[Parameter, ...] = ()
    in_place: bool = False  # the output lies where the first input lay
    part: Part | None = None
    split: Split | None = None

    @property
    def trained(self) -> tuple[Parameter, ...]:
        """Those of its parameters that are trained."""
        return tuple(p for p in self.parameters if p.trained)


@dataclass(frozen=True, eq=False)
class Network:
    """``elements[i]`` is the size of tensor ``i``; those that no layer writes are fed in.

    ``samples`` is what throughput counts: images, or sequences (``sample`` names it).  ``trained_inputs`` are tensors
    that are fed in by layers before, on another device, and need gradients.  Two networks are the same only where they
    are one object, so that what is found of one is found once (:func:`once`).
    """

    name: str
    layers: tuple[Layer, ...]
    elements: tuple[int, ...]
    samples: int
    sample: str = "images"
    trained_inputs: frozenset[int] = frozenset()

    @cached_property
    def tokens(self) -> int:
        """Tokens that go in: what the first embedding looks up; 0 where there is none."""
        first = next((layer.operator for layer in self.layers if isinstance(layer.operator, Embedding)), None)
        return first.rows if first is not None else 0

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter once, in the order of first use."""
        return tuple(dict.fromkeys(p for layer in self.layers for p in layer.parameters))

    @cached_property
    def parameter_count(self) -> int:
        """Elements of all parameters."""
        return sum(p.elements for p in self.parameters)

    @cached_property
    def trained_count(self) -> int:
        """Elements of those that are trained; of the others there are no gradients."""
        return sum(p.elements for p in self.parameters if p.trained)

    @cached_property
    def active_parameter_count(self) -> int:
        """Elements of the parameters that a token meets: of experts, those that it goes to."""
        idle = 0
        for layer in self.layers:
            operator = layer.operator
            if isinstance(operator, Linear) and operator.experts > 1:
                weights = operator.experts * operator.inputs * operator.outputs
                idle += weights - weights * operator.rows // (operator.experts * self.tokens)
        return self.parameter_count - idle

    @cached_property
    def fed_elements(self) -> int:
        """Elements of the tensors that are fed in: those that no layer writes."""
        written = {layer.output for layer in self.layers}
        return sum(size for number, size in enumerate(self.elements) if number not in written)

    @cached_property
    def flop(self) -> int:
        """FLOPs of the forward pass, as FlopCounterMode counts."""
        return sum(layer.operator.flop for layer in self.layers)


def once(analysis: Callable[P, T]) -> Callable[P, T]:
    """Let what *analysis* finds of a network be remembered, for the networks that were last asked about."""
    return lru_cache(maxsize=32)(analysis)  # type: ignore[return-value]


def shape_of(network: Network) -> Hashable:
    """Return what two networks share that take equally long: their operators, and who reads which tensor."""
    numbers: dict[int, int] = {}
    layers = tuple(
        (
            layer.operator,
            tuple(numbers.setdefault(tensor, len(numbers)) for tensor in (*layer.inputs, layer.output)),
            len(layer.parameters),
            len(layer.trained),
        )
        for layer in network.layers
    )
    return layers, bool(network.trained_inputs)


@lru_cache(maxsize=16384)
def block_name(layer: str) -> str:
    """Return the repeated block that the layer of that name is in: ``blocks.3`` of ``blocks.3.mlp.up``, or nothing."""
    match = _BLOCK.match(layer)
    return match[0] if match else ""
