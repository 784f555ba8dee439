"""PyTorch's autocast: the tensors in half precision, and the casts.

Products read and write half precision.  Normalisation over rows, softmax, the loss and powers compute and write fp32.
Embeddings write fp32, as their parameters are fp32.  All other operators keep the format of their inputs, or the wider
one if these differ.  So from the embedding on, the residual stream of a transformer is fp32, and each product casts it
again, because only casts of parameters are cached (docs.pytorch.org, "Autocast Op Reference": operations that autocast
to float32, that promote to the widest input type).  A softmax reads half precision without a cast.  In the backward
pass, each cast becomes a cast in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.records import dataclass
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import Elementwise, Operator


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of an operator's input, and of its gradient.

    ``to_half``: the input is cast to half precision and its gradient to fp32; otherwise the reverse.
    ``backward_alone``: the operator itself promotes the input, and only the gradient is cast.
    """

    tensor: int
    to_half: bool
    backward_alone: bool = False


@once
def wide_tensors(network: Network) -> tuple[bool, ...]:
    """Return for each tensor of *network* whether it is in fp32; the network's inputs are."""
    wide = [True] * len(network.elements)
    for layer in network.layers:
        wide[layer.output] = _is_wide(layer.operator, [wide[tensor] for tensor in layer.inputs])
    return tuple(wide)


def _is_wide(operator: Operator, inputs: Sequence[bool]) -> bool:
    if operator.is_product:
        return False
    return operator.autocast.startswith("fp32") or _widens(operator, len(inputs)) or any(inputs)


def _widens(operator: Operator, n_inputs: int) -> bool:
    """Return whether *operator* always returns fp32: powers, and sums with a mask or a table in fp32."""
    adds = isinstance(operator, Elementwise) and operator.function == "add"
    return operator.autocast == "powers" or (adds and n_inputs == 1)


def casts_of(layer: Layer, wide: Sequence[bool]) -> Iterator[Cast]:
    """Yield the casts of *layer*'s inputs; *wide* says which tensors are in fp32."""
    does = layer.operator.autocast
    if does == "half":
        yield from (Cast(tensor, to_half=True) for tensor in layer.inputs if wide[tensor])
    elif does == "fp32 after a cast":
        yield from (Cast(tensor, to_half=False) for tensor in layer.inputs[:1] if not wide[tensor])
    elif does in ("promotes", "powers") and wide[layer.output]:
        backward_alone = does == "promotes"
        yield from (Cast(tensor, False, backward_alone) for tensor in layer.inputs if not wide[tensor])
