"""DeepSeek's latent attention (arXiv 2405.04434, section 2.1), as Hugging Face's ``deepseek_v3`` trains it.

The keys and values of all heads are projected from a short latent vector per token.  The rotary part of each key is
shared by all heads.
"""

from __future__ import annotations

from simulator.workload.operators import Copy
from simulator.workload.zoo.attention import rotate, self_attention
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor
from simulator.workload.zoo.sizes import Latent


def latent_attention(b: NetworkBuilder, x: Tensor, name: str, d: Latent) -> Tensor:
    """Return the attention of a block with its output projection; *x* is already normalised.

    Raises SizeError if the rotary part does not divide a head, or is odd.
    """
    batch, length, _ = x.shape
    size = d.plain_size + d.rotary_size
    if size % d.rotary_size or d.rotary_size % 2:
        raise SizeError(f"{d.rotary_size} of {size} numbers of a head cannot turn")
    query = x
    if d.query_rank:
        query = b.linear(x, f"{name}.q_latent", d.query_rank, bias=False)
        query = b.layer_norm(query, f"{name}.q_norm", kind="rms_norm")
    query = b.linear(query, f"{name}.q", d.heads * size, bias=False, split="columns")
    latent = b.linear(x, f"{name}.kv_latent", d.kv_rank + d.rotary_size, bias=False)
    turning = b.view(latent, batch, length, d.rotary_size)
    kept = b.layer_norm(b.view(latent, batch, length, d.kv_rank), f"{name}.kv_norm", kind="rms_norm")
    both = b.linear(kept, f"{name}.kv", d.heads * (d.plain_size + d.value_size), bias=False, split="columns")
    query = rotate(b, query, f"{name}.rotate_q", size // d.rotary_size)
    turned = rotate(b, turning, f"{name}.rotate_k")
    keys = batch, length, d.heads * size
    key = b.add_layer(f"{name}.join_k", Copy(batch * length * d.heads * size), (both, turned), keys)
    value = b.view(both, batch, length, d.heads * d.value_size)
    y = self_attention(b, (query, key, value), name, heads=d.heads, kind=d.attention, mask="add-causal", dropout=False)
    return b.linear(y, f"{name}.out", d.hidden, bias=False, split="rows")
