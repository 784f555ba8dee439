"""What frameworks for inference run around attention, which tables of theirs time along.

Their attention also writes keys and values into a paged cache: SGLang's and vLLM's before it, by a kernel of its own
(vLLM up to 0.16: since then that is an operation besides, and rows of few and of many heads of keys take the same
time); TensorRT-LLM's rotates queries and keys, too.  Collectors in ``collector/*/collect_attn.py`` of
ai-dynamo/aiconfigurator capture one such call in a graph and replay it.
"""

from __future__ import annotations

import re

from simulator.workload.operators import Attention, AttentionLibrary

__all__ = ["attention_library", "copied_besides", "replays"]

_SERVING = re.compile(r"(vllm|sglang|trtllm|tensorrt-llm) (\d+)\.(\d+)", re.IGNORECASE)
_NATIVE = re.compile(
    r"vllm|sglang|trtllm|tensorrt-llm|transformer.?engine|megatron|nemo|cudnn|flash.?attention.?3", re.IGNORECASE
)
_TORCH = re.compile(r"(?:py)?torch ?(\d+)\.(\d+)", re.IGNORECASE)
_PREFERS_CUDNN = (2, 11)  # torch's own attention, on data centres' Hopper and Blackwell
_WRITES_APART = (0, 17)  # vLLM's cache, from this version on


def attention_library(software: str) -> AttentionLibrary:
    """Return whose kernels of attention *software*, as a table names it, runs."""
    torch = _TORCH.match(software)
    if torch is not None:
        return "native" if (int(torch[1]), int(torch[2])) >= _PREFERS_CUDNN else "flash2"
    return "native" if _NATIVE.search(software) else "flash2"


def replays(software: str) -> bool:
    """Return whether attention of *software* was timed as replays of a graph with that one call in it."""
    return _SERVING.match(software) is not None


def copied_besides(operator: Attention, software: str) -> int:
    """Return how many elements *software* copies before *operator*, timed along."""
    serving = _SERVING.match(software)
    if serving is None:
        return 0
    name, version = serving[1].lower(), (int(serving[2]), int(serving[3]))
    if name == "vllm" and version >= _WRITES_APART:
        return 0
    heads = 2 * (operator.kv_heads or operator.heads)
    if name in ("trtllm", "tensorrt-llm"):
        heads += operator.heads
    return operator.batch * heads * operator.key_length * operator.head_size
