"""Nemotron-3: blocks by a pattern, Mamba-2 as products of chunks; how ranks divide it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network
from simulator.workload.operators import Attention, ChunkScan, Conv2d, Exchange, LayerNorm, Linear
from simulator.workload.split.context import context_split
from simulator.workload.split.experts import expert_split
from simulator.workload.split.tensor import tensor_split
from simulator.workload.zoo.registry import build_network
from tests.active_parameters import active_parameters

LENGTH = 1024
SMALL: dict[str, Any] = {"layers": 6, "sequence_length": LENGTH}  # MEMEM*


def by_name(network: Network) -> dict[str, Layer]:
    return {layer.name: layer for layer in network.layers}


def of_block(network: Network, number: int) -> int:
    return sum(p.elements for p in network.parameters if p.name.startswith(f"layers.{number}."))


@pytest.mark.parametrize(
    ("name", "hidden", "heads", "experts", "chosen", "inner", "shared", "latent", "counts"),
    [
        ("nemotron-3-nano", 2688, 64, 128, 6, 1856, 3712, 0, (23, 23, 6)),
        ("nemotron-3-super", 4096, 128, 512, 22, 2688, 5376, 1024, (40, 40, 8)),
    ],
)
def test_parameters_by_arithmetic(
    name: str,
    hidden: int,
    heads: int,
    experts: int,
    chosen: int,
    inner: int,
    shared: int,
    latent: int,
    counts: tuple[int, int, int],
) -> None:
    wide, mixed = 64 * heads, 64 * heads + 2 * 8 * 128
    mamba = hidden * (wide + mixed + heads) + 5 * mixed + 3 * heads + wide + wide * hidden
    expert = 2 * (latent or hidden) * inner
    mixture = hidden * experts + experts * expert + 2 * hidden * shared + 2 * hidden * latent
    attention = hidden * (32 + 2 * 2 + 32) * 128
    network = build_network(name, batch=1)
    assert (of_block(network, 0), of_block(network, 1)) == (mamba + hidden, mixture + hidden)
    m, e, a = counts
    total = m * mamba + e * mixture + a * attention + (m + e + a + 1) * hidden + 2 * 131072 * hidden
    assert network.parameter_count == total
    assert active_parameters(network) == total - e * (experts - chosen) * expert


def test_a_scan_multiplies_as_its_paper_counts() -> None:
    layers = by_name(build_network("nemotron-3-nano", batch=2, **SMALL))
    scan = layers["layers.0.scan"].operator
    assert isinstance(scan, ChunkScan)
    tokens, inner, state, chunk, groups = 2 * LENGTH, 4096, 128, 128, 8
    each = 2 * tokens * inner  # FLOPs per element of a state, or per token of a chunk
    assert scan.flop == each * (2 * state + chunk) + 2 * tokens * groups * chunk * state
    conv = layers["layers.0.conv"].operator
    assert isinstance(conv, Conv2d)
    assert conv.flop == 2 * tokens * 6144 * 4
    assert scan.state_elements == tokens // chunk * inner * state


def test_ranks_divide_heads_groups_and_experts() -> None:
    whole = build_network("nemotron-3-nano", batch=1, **SMALL)
    part = expert_split(tensor_split(whole, 2, by_rows=True), 4)
    before, after = by_name(whole), by_name(part)
    for name in ("in", "conv", "scan", "out"):
        assert after[f"layers.0.{name}"].operator.flop * 2 == before[f"layers.0.{name}"].operator.flop
    norm = after["layers.0.gated_norm"]
    assert norm.operator == LayerNorm(LENGTH * 4, 512, "rms_norm")
    assert [p.elements for p in norm.parameters] == [2048]
    assert [p.elements for p in after["layers.0.scan"].parameters] == [32, 32, 32]
    attention, up = after["layers.5.attention"].operator, after["layers.1.experts_up"].operator
    assert isinstance(attention, Attention)
    assert (attention.heads, attention.kv_heads) == (16, 1)
    assert isinstance(up, Linear)
    assert (up.experts, up.outputs) == (32, 1856)
    exchanges = [layer for layer in part.layers if isinstance(layer.operator, Exchange) and "layers.0." in layer.name]
    assert [layer.name for layer in exchanges] == ["layers.0.in.enter", "layers.0.out.sum"]


def test_more_ranks_than_groups_are_refused() -> None:
    with pytest.raises(InputError, match=r"tp=16 does not divide the 8 groups of layers\.0\.scan; 1, 2, 4, 8"):
        tensor_split(build_network("nemotron-3-nano", batch=1, layers=1, sequence_length=LENGTH), 16)


def test_context_parallelism_is_refused() -> None:
    with pytest.raises(InputError, match=r"cp=2 cannot divide layers\.0\.scan, a scan of whole sequences"):
        context_split(build_network("nemotron-3-nano", batch=1, **SMALL), 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sequence_length": 1000}, "chunks of 128 tokens do not divide a sequence of 1000"),
        ({"layers": 53}, "its pattern has 52 layers, not 53"),
        ({"dense_layers": 1}, "dense_layers does not apply"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_network("nemotron-3-nano", batch=1, **options)


def test_blocks_that_predict_further_tokens_share_their_weights() -> None:
    plain, once, twice = (build_network("nemotron-3-super", batch=1, mtp_layers=n, **SMALL) for n in (0, 1, 2))
    assert once.parameter_count == twice.parameter_count
    assert twice.flop - once.flop == once.flop - plain.flop
    hidden, latent, inner = 4096, 1024, 2688
    mixture = hidden * 512 + 512 * 2 * latent * inner + 2 * hidden * 5376 + 2 * hidden * latent
    attention = hidden * (32 + 2 * 2 + 32) * 128
    norms = 5 * hidden  # of both inputs, both blocks and the result
    more = mixture + attention + norms + 2 * hidden * hidden
    assert once.parameter_count - plain.parameter_count == more


def test_a_scan_runs_the_kernels_of_mamba_ssm() -> None:
    tokens, heads, size, groups, state, chunk = 2 * LENGTH, 64, 64, 8, 128, 128
    scan = ChunkScan(2, LENGTH, heads, size, groups, state, chunk)
    forward, backward = scan.kernels("fwd", "bf16"), scan.kernels("bwd", "bf16")
    assert (len(forward), len(backward)) == (scan.host_calls("fwd"), scan.host_calls("bwd"))
    each, within = 2 * tokens * heads * size, 2 * tokens * groups * state * chunk
    assert sum(kernel.flop for kernel in forward) == scan.flop == each * (2 * state + chunk) + within
    # again: states and scores; then dstates, dx, dB, dC, dcb, what both chunk products give, and the decays
    again, products = each * state + within, each * (state + (state + chunk) + 2 * state + 2 * chunk) + 2 * within
    assert sum(kernel.flop for kernel in backward) == again + products
    states = tokens // chunk * heads * size * state
    passing = [
        kernel
        for kernel in (*forward, *backward)
        if isinstance(kernel, Streaming) and (kernel.function, kernel.elements) == ("cumsum", states)
    ]
    assert [kernel.bytes for kernel in passing] == [6 * states, 8 * states, 12 * states]
    copies = scan.kernels("fwd", "bf16", "megatron")[len(forward) :]
    projected = tokens * (2 * heads * size + 2 * groups * state + heads)
    assert [kernel.bytes for kernel in copies] == [4 * projected, 4 * tokens * heads * size]
    alone = replace(scan, batch=1)
    assert alone.kernels("fwd", "bf16", "megatron") == alone.kernels("fwd", "bf16")
