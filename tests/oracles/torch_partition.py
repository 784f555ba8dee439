"""The bytes that torch's partitioner saves between the passes of a compiled step, without a GPU and without a compiler.

AOTAutograd traces both passes of a module on fake CUDA tensors with Inductor's decompositions, and
``min_cut_rematerialization_partition`` divides the graph.  Run it with ``python -W ignore -m
tests.oracles.torch_partition``, which prints the bytes of each of ``NETWORKS`` as JSON; it has a process of its own,
since that pretends a GPU.  Weights, and their copies in another format, are not counted.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import torch
import torch._dynamo.utils
import torch._inductor.lowering  # some decompositions read it
from torch import nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tests.oracles.pretended_cuda import autocasting, pretend
from validate.machine.measure.built.description import Sizes, builtin_network
from validate.machine.measure.built.module import build_module

_SMALL = Sizes(length=64, hidden=256, heads=4, layers=2, vocabulary=5000)
NETWORKS: dict[str, tuple[int, Sizes]] = {
    "resnet18-28x28": (8, Sizes()),
    "unet": (1, Sizes()),
    "alexnet": (16, Sizes()),
    "lenet": (64, Sizes()),
    "gpt2": (3, _SMALL),
    "bert-base": (3, _SMALL),
}
"""The batch and the sizes of each network."""


class _Divided(Exception):  # noqa: N818  it ends the tracing
    pass


def _fused_attention(q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, **_: Any) -> Any:
    half = [each.to(torch.bfloat16) for each in (q, k, v)]
    return torch.ops.aten._scaled_dot_product_flash_attention(*half, dropout_p, is_causal)[0]


def saved_bytes(name: str) -> int:
    """Return what a step of the network *name* of ``NETWORKS`` saves under autocast."""
    batch, sizes = NETWORKS[name]
    example = build_module(builtin_network(name, sizes, batch, training=True), torch.device("meta"))
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def cuda(tensor: Any) -> Any:
        return FakeTensor(mode, tensor.detach(), torch.device("cuda:0"))

    own = {key: nn.Parameter(cuda(p), p.requires_grad) for key, p in example.module.named_parameters()}
    held = {key: cuda(buffer) for key, buffer in example.module.named_buffers()}
    inputs = tuple(map(cuda, example.inputs))
    found: list[Any] = []

    def divided(graph: Any, inputs: Any, **how: Any) -> Any:
        forward, _ = min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **how)
        found.extend(forward.graph.output_node().args[0][how["num_fwd_outputs"] :])
        raise _Divided

    def loss(*flat: Any) -> Any:
        state = dict(zip((*own, *held), flat[: len(own) + len(held)], strict=True))
        results = torch.func.functional_call(example.module, state, flat[len(state) :])
        numbers = [y for y in results if y.requires_grad and y.numel() == 1]
        return sum(numbers or [y.float().sum() for y in results if y.requires_grad])

    with mode, torch.device("cuda"), autocasting():
        traced = aot_function(loss, lambda graph, _: graph, partition_fn=divided, decompositions=select_decomp_table())
        with suppress(_Divided):
            traced(*own.values(), *held.values(), *inputs)
    shapes = {tuple(p.shape) for p in own.values()}
    weights = shapes | {shape[::-1] for shape in shapes}
    tensors = [n.meta["val"] for n in found if n.op != "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors if tuple(t.shape) not in weights)


if __name__ == "__main__":
    pretend()
    torch._dynamo.utils.assert_no_fake_params_or_buffers = lambda *_: None  # tables of a module are constants
    nn.functional.scaled_dot_product_attention = _fused_attention  # whose choice asks for a GPU
    sys.stdout.write(json.dumps({name: saved_bytes(name) for name in NETWORKS}))
    sys.stdout.flush()
    os._exit(0)
