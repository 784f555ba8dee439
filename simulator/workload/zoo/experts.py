"""Layers of experts: a router sends each token to some of many feed-forward layers (arXiv 2101.03961, 2401.04088).

As Megatron-LM and Hugging Face's ``grouped_mm`` run them: scores of all experts, the best of each token; each token is
copied once for each expert that it goes to, in the order of experts; two grouped products with a gate between; each
result is weighted, and those of a token are added up.  Routing is balanced: each expert gets as many tokens.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Copy, Elementwise, Linear, Reduction
from simulator.workload.zoo.builder import NetworkBuilder, Tensor
from simulator.workload.zoo.sizes import Mixture

__all__ = ["experts"]


def experts(b: NetworkBuilder, x: Tensor, name: str, d: Mixture) -> Tensor:
    """Return of each token of *x* the sum of what its experts return."""
    hidden = x.shape[-1]
    tokens = x.elements // hidden
    rows = tokens * d.chosen
    scores = b.softmax(b.linear(x, f"{name}.router", d.experts, bias=False), f"{name}.scores")
    weights = b.elementwise(f"{name}.topk", "topk", scores)  # those of experts not chosen become 0
    with b.part("experts"):
        y = b.add_layer(f"{name}.dispatch", Copy(rows * hidden), (x,), (rows, hidden))
        y = _products(b, y, f"{name}.experts_up", 2 * d.expert_inner, d.experts)
        half = b.view(y, rows, d.expert_inner)
        y = b.elementwise(f"{name}.experts_mul", "mul", b.elementwise(f"{name}.experts_silu", "silu", half), half)
        y = _products(b, y, f"{name}.experts_down", hidden, d.experts)
        # The weights are a number a row, the rest of what is read is the results.
        y = b.add_layer(f"{name}.weigh", Elementwise("mul", rows * hidden), (y, weights), (rows, hidden))
        return b.add_layer(f"{name}.combine", Reduction(tokens * hidden, d.chosen), (y,), x.shape)


def _products(b: NetworkBuilder, x: Tensor, name: str, outputs: int, count: int) -> Tensor:
    """Return each row of *x* times the matrix of its expert."""
    rows, inputs = x.shape
    weight = Parameter(f"{name}.weight", count * inputs * outputs)
    return b.add_layer(name, Linear(rows, inputs, outputs, bias=False, experts=count), (x,), (rows, outputs), (weight,))
