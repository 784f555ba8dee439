"""PyTorch's autocast: which tensors are in half precision, and where they are cast.

Products take and give half precision.  Normalisation over rows, softmax, the loss and powers compute and give fp32;
embeddings look up parameters, which are fp32.  All else keeps what it gets, and the wider where two meet: so from
the embedding on the sum along the residuals of a transformer is fp32, and each product casts it again, for only
casts of parameters are kept (docs.pytorch.org, "Autocast Op Reference": operations that autocast to float32, that
promote to the widest input type).  A softmax reads half precision as it is.  Backward each cast is a cast back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.workload import operators as ops
from simulator.workload.network import Layer, Network, once

__all__ = ["PRODUCTS", "Cast", "casts_of", "wide_tensors"]

PRODUCTS = (ops.Linear, ops.MatMul, ops.Conv2d, ops.Recurrent, ops.Attention)
_WIDE = (ops.LayerNorm, ops.Softmax, ops.CrossEntropy, ops.Embedding, ops.Reduction)


@dataclass(frozen=True, slots=True)
class Cast:
    """A tensor that is cast for an operator, or whose gradient is cast after it.

    ``to_half``: forward to half precision, and its gradient to fp32; otherwise the other way.  ``backward_alone``:
    the operator promotes it by itself, and only its gradient is cast.
    """

    tensor: int
    to_half: bool
    backward_alone: bool = False


@once
def wide_tensors(network: Network) -> tuple[bool, ...]:
    """Return for each tensor of *network* whether it is in fp32; what is fed in is."""
    wide = [True] * len(network.elements)
    for layer in network.layers:
        wide[layer.output] = _is_wide(layer.operator, [wide[tensor] for tensor in layer.inputs])
    return tuple(wide)


def _is_wide(operator: ops.Operator, inputs: Sequence[bool]) -> bool:
    if isinstance(operator, PRODUCTS):
        return False
    return isinstance(operator, _WIDE) or _widens(operator, len(inputs)) or any(inputs)


def _widens(operator: ops.Operator, n_inputs: int) -> bool:
    """Return whether *operator* gives fp32 whatever it gets: powers, and a sum with a mask or a table in fp32."""
    if not isinstance(operator, ops.Elementwise):
        return False
    return operator.function.startswith("pow") or (operator.function == "add" and n_inputs == 1)


def casts_of(layer: Layer, wide: Sequence[bool]) -> Iterator[Cast]:
    """Yield what is cast for *layer*, where *wide* says which tensors are in fp32."""
    operator = layer.operator
    if isinstance(operator, PRODUCTS):
        yield from (Cast(tensor, to_half=True) for tensor in layer.inputs if wide[tensor])
    elif isinstance(operator, ops.LayerNorm | ops.CrossEntropy):
        yield from (Cast(tensor, to_half=False) for tensor in layer.inputs[:1] if not wide[tensor])
    elif isinstance(operator, ops.Elementwise) and wide[layer.output]:
        casts_first = operator.function.startswith("pow")
        yield from (
            Cast(tensor, to_half=False, backward_alone=not casts_first) for tensor in layer.inputs if not wide[tensor]
        )
