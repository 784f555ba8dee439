"""A network: operators in the order of the forward pass, and the tensors between them."""

import re
from collections.abc import Callable, Hashable
from functools import cached_property, lru_cache
from typing import Literal, ParamSpec, TypeVar

from simulator.records import dataclass, lists_by_key
from simulator.workload.operators import Attention, Conv2d, Embedding, Exchange, MatMul, Operator, Recurrent, Softmax

Part = Literal["attention", "feed-forward", "experts"]
Split = Literal["columns", "rows"]
Family = Literal["CNN", "transformer", "MoE"]

P = ParamSpec("P")
T = TypeVar("T")

_PACKED = 4  # weights in 16 bits
_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a repeated block


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight or a bias, trained or frozen.  Layers that name the same parameter share it."""

    name: str
    elements: int
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator at its place in the network.

    ``inputs`` and ``output`` are the numbers of the tensors that it reads and writes.  A view (a reshape, or a
    transposition that moves nothing) has the number of its base tensor.

    ``part`` is the layer's position in a transformer block.  Attention extends from the projections of queries, keys
    and values to the output projection.  Experts extend from the copying of tokens to their experts to the summation
    of the results; the layers between work on one row per token and chosen expert.

    ``split`` says how the weight of a linear layer can be divided over ranks (Megatron-LM, arXiv 1909.08053, section
    3; docs/decisions/parallelism.md): each has some outputs (``columns``), some inputs (``rows``), or None, all.
    """

    name: str
    operator: Operator
    inputs: tuple[int, ...]
    output: int
    parameters: tuple[Parameter, ...] = ()
    in_place: bool = False  # the output overwrites the first input
    part: Part | None = None
    split: Split | None = None

    @property
    def trained(self) -> tuple[Parameter, ...]:
        """The trained parameters."""
        return tuple([p for p in self.parameters if p.trained]) if self.parameters else ()


@dataclass(frozen=True, eq=False)
class Network:
    """A network: layers in forward order, and the sizes of the tensors between them.

    ``elements[i]`` is the size of tensor ``i``; tensors that no layer writes are inputs of the network.  ``samples``
    is the batch size, in the unit of throughput, whose name is ``sample`` (images, sequences).  ``trained_inputs`` are
    inputs from layers on another device that need gradients.  ``name`` is how a question names it; ``own_name`` differs
    where the question changed its sizes.  Networks compare by identity, so that analyses are
    cached per object (:func:`once`).
    """

    name: str
    layers: tuple[Layer, ...]
    elements: tuple[int, ...]
    samples: int
    sample: str = "images"
    trained_inputs: frozenset[int] = frozenset()
    own_name: str = ""

    @property
    def title(self) -> str:
        """What answers call it."""
        return self.own_name or self.name

    @cached_property
    def tokens(self) -> int:
        """Tokens in a batch: the indices that the first embedding looks up; 0 without an embedding."""
        first = next((layer.operator for layer in self.layers if isinstance(layer.operator, Embedding)), None)
        return first.rows if first is not None else 0

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter once, in order of first use."""
        return tuple(dict.fromkeys(p for layer in self.layers for p in layer.parameters))

    @cached_property
    def parameter_count(self) -> int:
        """Elements of all parameters, trained and frozen."""
        return sum(p.elements for p in self.parameters)

    @cached_property
    def trained_count(self) -> int:
        """Elements of the trained parameters; the others have no gradients."""
        return sum(p.elements for p in self.parameters if p.trained)

    @cached_property
    def fed_elements(self) -> int:
        """Elements of the network's inputs: the tensors that no layer writes."""
        written = {layer.output for layer in self.layers}
        return sum(size for number, size in enumerate(self.elements) if number not in written)

    @cached_property
    def flop(self) -> int:
        """FLOPs of the forward pass, as FlopCounterMode counts them."""
        return sum(layer.operator.flop for layer in self.layers)


def once(analysis: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of *analysis* for the 32 most recent arguments."""
    return lru_cache(maxsize=32)(analysis)  # type: ignore[return-value]


@once
def packed_weights(network: Network) -> dict[str, int]:
    """Return the bytes in which each weight of *network* that is packed into fewer bits is kept, by its name."""
    kept = ((layer, layer.operator.packed_bytes) for layer in network.layers)
    return {layer.parameters[0].name: n_bytes for layer, n_bytes in kept if n_bytes}


@once
def readers_of(network: Network) -> dict[int, list[Layer]]:
    """Return the layers that read each tensor, in order."""
    return lists_by_key((tensor, layer) for layer in network.layers for tensor in layer.inputs)


def network_key(network: Network) -> Hashable:
    """Return a key that is equal for networks that take equally long: their operators and data flow, without names."""
    numbers: dict[int, int] = {}
    found = []
    for layer in network.layers:
        tensors = tuple(numbers.setdefault(tensor, len(numbers)) for tensor in (*layer.inputs, layer.output))
        found.append((layer.operator, tensors, len(layer.parameters), len(layer.trained)))
    return tuple(found), bool(network.trained_inputs)


@lru_cache(maxsize=16384)
def block_name(layer: str) -> str:
    """Return the repeated block that contains the layer named *layer*: ``blocks.3`` for ``blocks.3.mlp.up``, or ""."""
    match = _BLOCK.match(layer)
    return match[0] if match else ""


def in_any_block(layer: str) -> str:
    """Return the name of *layer* in any of the repeated blocks: ``blocks.*.mlp.up`` for ``blocks.3.mlp.up``."""
    return _NUMBER.sub("*", layer)


@once
def family_of(network: Network) -> Family | None:
    """Return "CNN" if convolutions have most FLOPs, "MoE" if tokens go to experts, "transformer" if tokens attend.

    Hybrids with Mamba's layers belong to the last two.  A network that recurs, or does none of this, has no family.
    """
    convolved = sum(layer.operator.flop for layer in network.layers if isinstance(layer.operator, Conv2d))
    if convolved > 0.5 * network.flop:
        return "CNN"
    if any(isinstance(layer.operator, Recurrent) for layer in network.layers):
        return None
    if any(layer.part == "experts" for layer in network.layers):
        return "MoE"
    kinds = {type(layer.operator) for layer in network.layers}
    return "transformer" if Attention in kinds or {MatMul, Softmax} <= kinds else None


def unit_elements(network: Network, *, trained: bool = False, only: frozenset[str] | None = None) -> dict[str, int]:
    """Return the parameters (elements) of each repeated block, and outside of blocks (key ""), each counted once.

    *trained*: only parameters with gradients; *only*: only parameters with these names.  Four weights in four bits
    count as one of 16 bits, which they are when they are gathered.
    """
    packed = packed_weights(network)
    return {
        name: sum(-(-p.elements // _PACKED) if p.name in packed else p.elements for p in parameters)
        for name, parameters in unit_parameters(network, trained=trained, only=only).items()
    }


def unit_parameters(
    network: Network, *, trained: bool = False, only: frozenset[str] | None = None
) -> dict[str, list[Parameter]]:
    """Return the parameters that :func:`unit_elements` counts, by block."""
    found: dict[str, list[Parameter]] = {}
    seen: set[str] = set()
    for layer in network.layers:
        name = block_name(layer.name)
        for parameter in layer.trained if trained else layer.parameters:
            if parameter.name not in seen and (only is None or parameter.name in only):
                seen.add(parameter.name)
                found.setdefault(name, []).append(parameter)
    return found


# -- the exchanges that a layer waits for ----------------------------------------------


@once
def forward_needs(network: Network) -> dict[str, tuple[str, ...]]:
    """Return, by layer name, the forward-pass exchanges that produce the layer's inputs."""
    brought: dict[int, tuple[str, ...]] = {}  # by tensor
    found: dict[str, tuple[str, ...]] = {}
    for layer in network.layers:
        needs = tuple(dict.fromkeys(name for tensor in layer.inputs for name in brought.get(tensor, ())))
        if needs:
            found[layer.name] = needs
        if isinstance(layer.operator, Exchange):
            brought[layer.output] = (layer.name,) if layer.operator.forward is not None else needs
        else:
            brought.pop(layer.output, None)
    return found


@once
def backward_needs(network: Network) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return, by layer name, the backward-pass exchanges that produce the gradient of the layer's output.

    Then those that produce parts of its inputs' gradients, to be added.
    """
    brought: dict[int, dict[str, None]] = {}
    found: dict[str, tuple[str, ...]] = {}
    added: dict[str, tuple[str, ...]] = {}
    for layer in reversed(network.layers):
        needs = tuple(brought.pop(layer.output, ()))
        if needs:
            found[layer.name] = needs
        if isinstance(layer.operator, Exchange):
            names = (layer.name,) if layer.operator.backward is not None else needs
            for tensor in layer.inputs:
                brought.setdefault(tensor, {}).update(dict.fromkeys(names))
        parts = tuple(dict.fromkeys(name for tensor in layer.inputs for name in brought.get(tensor, ())))
        if parts:
            added[layer.name] = parts
    return found, added
