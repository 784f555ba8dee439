"""Nemotron-3 of transformers, with the convolution and the scan as mamba_ssm's kernels multiply.

Without those kernels transformers repeats B and C for each head, pads the convolution on both sides, and so multiplies
more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

from tests.oracles.torch_counting import oracle
from tests.oracles.torch_libraries import language

_KINDS = {"M": "linear_attention", "*": "full_attention", "E": "moe", "-": "mlp"}
NEMOTRON3: dict[str, tuple[str, dict[str, int]]] = {
    "nemotron-3-nano": (
        "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        {"hidden_size": 2688, "mamba_num_heads": 64, "n_routed_experts": 128, "num_experts_per_tok": 6}
        | {"moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712},
    ),
    "nemotron-3-super": (
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
        {"hidden_size": 4096, "mamba_num_heads": 128, "n_routed_experts": 512, "num_experts_per_tok": 22}
        | {"moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024},
    ),
    "nemotron-h-56b": (
        "M-M-M-M*" + 9 * "-M-M-M-M-M*" + "-M-M-M-M-M-",
        {"hidden_size": 8192, "mamba_num_heads": 256, "intermediate_size": 32768, "ssm_state_size": 256}
        | {"num_attention_heads": 64, "num_key_value_heads": 8, "chunk_size": 256},
    ),
}


class _Masked(nn.Module):
    """A model that is called with a mask for attention alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.model(tokens, attention_mask={"full_attention": mask, "linear_attention": None})


def _conv(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, **_: Any) -> torch.Tensor:
    x = F.pad(x, (weight.shape[-1] - 1, 0))
    return F.silu(F.conv1d(x, weight.unsqueeze(1), bias, groups=weight.shape[0]))


def _scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    chunk_size: int,
    *,
    D: torch.Tensor,
    dt_bias: torch.Tensor,
    **_: Any,
) -> torch.Tensor:
    """Return a scan of the right products; of decays only the sizes matter on device meta."""
    batch, length, heads, size = x.shape
    groups, chunks = b.shape[2], length // chunk_size
    steps = F.softplus(dt + dt_bias)
    y = (x * (steps * a)[..., None]).reshape(batch, chunks, chunk_size, groups, -1)
    b, c = (t.reshape(batch, chunks, chunk_size, groups, -1) for t in (b, c))
    scores = torch.einsum("zclgn,zcsgn->zcgls", c, b)
    inside = torch.einsum("zcgls,zcsgp->zclgp", scores, y)
    states = torch.einsum("zcsgn,zcsgp->zcgnp", b, y).cumsum(1)
    before = torch.einsum("zclgn,zcgnp->zclgp", c, states)
    return (inside + before).reshape(batch, length, heads, size) + x * D[:, None]


@oracle(*NEMOTRON3, needs="transformers")
def nemotron3(name: str) -> Any:
    from transformers import NemotronHConfig, NemotronHForCausalLM
    from transformers.models.nemotron_h import modeling_nemotron_h as code

    code.causal_conv1d_fn, code.mamba2_chunk_scan = _conv, _scan
    pattern, sizes = NEMOTRON3[name]
    config = NemotronHConfig(
        layers_block_type=[_KINDS[letter] for letter in pattern],
        **{
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "chunk_size": 128,
            "vocab_size": 131072,
            "use_cache": False,
            **sizes,
        },
    )
    model, (tokens, mask) = language(NemotronHForCausalLM, config, 8192)
    return _Masked(model.model), (tokens, mask)
