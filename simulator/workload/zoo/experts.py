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


def experts(b: NetworkBuilder, x: Tensor, name: str, d: Mixture) -> Tensor:
    """Return, for each token of *x*, the weighted sum of its experts' results."""
    hidden = d.expert_latent or x.shape[-1]
    tokens = x.elements // x.shape[-1]
    rows = tokens * d.chosen
    scores = b.softmax(b.linear(x, f"{name}.router", d.experts, bias=d.expert_bias), f"{name}.scores")
    weights = b.elementwise(f"{name}.topk", "topk", scores)  # weights of experts that were not chosen become 0
    y = b.linear(x, f"{name}.latent_in", hidden, bias=False) if d.expert_latent else x
    with b.part("experts"):
        y = b.add_layer(f"{name}.dispatch", Copy(rows * hidden), (y,), (rows, hidden))
        y = _products(b, y, f"{name}.experts_up", (2 if d.gated else 1) * d.expert_inner, d)
        half = b.view(y, rows, d.expert_inner)
        activate = _clamped if d.expert_bias else _gated if d.gated else _squared
        y = activate(b, half, f"{name}.experts")
        y = _products(b, y, f"{name}.experts_down", hidden, d)
        # The weights are one number per row; nearly all bytes read are the results.
        y = b.add_layer(f"{name}.weigh", Elementwise("mul", rows * hidden), (y, weights), (rows, hidden))
        y = b.add_layer(f"{name}.combine", Reduction(tokens * hidden, d.chosen), (y,), (*x.shape[:-1], hidden))
    return b.linear(y, f"{name}.latent_out", x.shape[-1], bias=False) if d.expert_latent else y


def _gated(b: NetworkBuilder, half: Tensor, name: str) -> Tensor:
    """Return ``silu(x) y``; *half* has the shape of x and y, views of one tensor."""
    return b.elementwise(f"{name}_mul", "mul", b.elementwise(f"{name}_silu", "silu", half), half)


def _squared(b: NetworkBuilder, whole: Tensor, name: str) -> Tensor:
    """Return the squared ReLU (Nemotron-3)."""
    return b.elementwise(f"{name}_square", "pow_scalar", b.elementwise(f"{name}_relu", "relu", whole))


def _clamped(b: NetworkBuilder, half: Tensor, name: str) -> Tensor:
    """Return ``x sigmoid(1.702 x) (y + 1)`` of clamped x and y, as Hugging Face's ``gpt_oss`` computes it."""
    gate = b.elementwise(f"{name}_clamp_gate", "clamp", half)
    up = b.elementwise(f"{name}_clamp_up", "clamp", half)
    scaled = b.elementwise(f"{name}_alpha", "mul_scalar", gate)
    gate = b.elementwise(f"{name}_glu", "mul", gate, b.elementwise(f"{name}_sigmoid", "sigmoid", scaled))
    return b.elementwise(f"{name}_mul", "mul", b.elementwise(f"{name}_one", "add_scalar", up), gate)


def _products(b: NetworkBuilder, x: Tensor, name: str, outputs: int, d: Mixture) -> Tensor:
    """Return each row of *x* multiplied by the matrix of its expert."""
    rows, inputs = x.shape
    parameters: tuple[Parameter, ...] = (Parameter(f"{name}.weight", d.experts * inputs * outputs),)
    if d.expert_bias:
        parameters += (Parameter(f"{name}.bias", d.experts * outputs),)
    operator = Linear(rows, inputs, outputs, bias=d.expert_bias, experts=d.experts)
    return b.add_layer(name, operator, (x,), (rows, outputs), parameters)
