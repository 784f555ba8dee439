"""The memory of a GPU that DeepEP takes to exchange tokens of experts, which no framework's allocator counts.

After csrc/config.hpp (``get_nvl_buffer_size_hint``, ``get_rdma_buffer_size_hint``), ``get_dispatch_config`` and
``get_combine_config`` of deep_ep/buffer.py, and csrc/kernels/configs.cuh of deepseek-ai/DeepEP; Megatron-LM asks for
the larger of both (``get_buffer`` in megatron/core/transformer/moe/fused_a2a.py).

* A channel is two of 20 SMs.  It has a ring of tokens for each GPU of a machine, each with its numbers and room for 128
  experts (indices of 8 B, weights of 4 B) and 128 scales of 4 B.
* Over a network, GPUs in the same place of each machine exchange: two rings a machine and channel, sending and
  receiving.  NVSHMEM, which holds them, takes memory in 512 MiB (``NVSHMEM_CUMEM_GRANULARITY``).
"""

from __future__ import annotations

from bisect import bisect_left

_CHANNELS = 20 // 2
_ON_MACHINE = 8  # NUM_MAX_NVL_PEERS
_BESIDES = 8 + 128 * 8 + 128 * 4 + 128 * 4  # of a token: where it comes from, experts, weights, scales
_CONTROL = 16
_WORKSPACE = 32 * 2**20
_NVSHMEM = 512 * 2**20
# The tokens of a ring on a machine, and of one over a network (a multiple of those that are sent at once), by ranks.
_RANKS = (8, 16, 24, 32, 64, 128, 144)
_TOKENS = ((256, 0), (288, 140), (288, 128), (288, 128), (288, 140), (560, 132), (720, 132))


def deep_ep_bytes(n_ranks: int, hidden: int) -> float:
    """Return the bytes on each of *n_ranks* GPUs that exchange tokens of *hidden* numbers in 16 bits."""
    inside, across = _TOKENS[min(bisect_left(_RANKS, n_ranks), len(_RANKS) - 1)]
    token = 2 * hidden + _BESIDES
    machines, near = max(1, n_ranks // _ON_MACHINE), min(n_ranks, _ON_MACHINE)
    found = _CHANNELS * near * (inside * token + (2 * machines + 3) * 4) + _WORKSPACE
    if n_ranks <= _ON_MACHINE:
        return float(found)
    rings = _CHANNELS * machines * 2 * (across * (token + _CONTROL) + (2 * _ON_MACHINE + 2) * 4)
    return float(found + -(-rings // _NVSHMEM) * _NVSHMEM)
