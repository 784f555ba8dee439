"""Mixture-of-experts layers: a router sends each token to some feed-forward layers (arXiv 2101.03961, 2401.04088).

As in Megatron-LM and Hugging Face's ``grouped_mm``: the router scores all experts and takes the best for each token;
each token is copied once per chosen expert, sorted by expert; two grouped products with a gate between them follow;
the results are weighted and summed per token.  Routing is balanced: all experts get equally many tokens.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Copy, Elementwise, Linear, Reduction
from simulator.workload.zoo.builder import NetworkBuilder, Tensor
from simulator.workload.zoo.sizes import Mixture

__all__ = ["experts"]


def experts(b: NetworkBuilder, x: Tensor, name: str, d: Mixture) -> Tensor:
    """Return, for each token of *x*, the weighted sum of its experts' results."""
    hidden = x.shape[-1]
    tokens = x.elements // hidden
    rows = tokens * d.chosen
    scores = b.softmax(b.linear(x, f"{name}.router", d.experts, bias=False), f"{name}.scores")
    weights = b.elementwise(f"{name}.topk", "topk", scores)  # weights of experts that were not chosen become 0
    with b.part("experts"):
        y = b.add_layer(f"{name}.dispatch", Copy(rows * hidden), (x,), (rows, hidden))
        y = _products(b, y, f"{name}.experts_up", 2 * d.expert_inner, d.experts)
        half = b.view(y, rows, d.expert_inner)
        y = b.elementwise(f"{name}.experts_mul", "mul", b.elementwise(f"{name}.experts_silu", "silu", half), half)
        y = _products(b, y, f"{name}.experts_down", hidden, d.experts)
        # The weights are one number per row; nearly all bytes read are the results.
        y = b.add_layer(f"{name}.weigh", Elementwise("mul", rows * hidden), (y, weights), (rows, hidden))
        return b.add_layer(f"{name}.combine", Reduction(tokens * hidden, d.chosen), (y,), x.shape)


def _products(b: NetworkBuilder, x: Tensor, name: str, outputs: int, count: int) -> Tensor:
    """Return each row of *x* multiplied by the matrix of its expert."""
    rows, inputs = x.shape
    weight = Parameter(f"{name}.weight", count * inputs * outputs)
    return b.add_layer(name, Linear(rows, inputs, outputs, bias=False, experts=count), (x,), (rows, outputs), (weight,))
