"""The work around attention in inference frameworks, which their published times include.

Their attention also writes keys and values into a paged cache.  SGLang and, up to 0.16, vLLM run a kernel for it
before attention; since 0.17 vLLM runs it as a separate operation, and the number of key-value heads no longer changes
the measured time.  TensorRT-LLM also rotates queries and keys.  The collectors (``collector/*/collect_attn.py`` of
ai-dynamo/aiconfigurator) capture one such call in a graph and replay it.
"""

from __future__ import annotations

import math
import re

from simulator.workload.operators import Attention, AttentionLibrary

_SERVING = re.compile(r"(vllm|sglang|trtllm|tensorrt-llm) (\d+)\.(\d+)", re.IGNORECASE)
_TENSORRT = re.compile(r"trtllm|tensorrt-llm", re.IGNORECASE)
_NATIVE = re.compile(r"vllm|sglang|transformer.?engine|megatron|nemo|cudnn|flash.?attention.?3", re.IGNORECASE)
_TORCH = re.compile(r"(?:py)?torch ?(\d+)\.(\d+)", re.IGNORECASE)
_CUDNN = re.compile(r"cudnn (?:\S+ backend )?(\d)(\d\d)(\d\d)\b|cudnn (\d+)\.(\d+)\.", re.IGNORECASE)  # 92200 is 9.22.0
_FOURTH = re.compile(r"flash.?attention.?4", re.IGNORECASE)
_FOURTH_CUDNN = (9, 14)  # cuDNN version from which attention is FlashAttention 4's on Blackwell
_PREFERS_CUDNN = (2, 11)  # torch version from which attention uses cuDNN on data-centre Hopper and Blackwell
_WRITES_APART = (0, 17)  # vLLM version from which the cache is written by a separate operation
_MOST_THREADS = 512  # of a block of vLLM's reshape_and_cache_flash, which writes one token


def attention_library(software: str) -> AttentionLibrary:
    """Return the library whose attention kernels *software* runs; tables name it with its version."""
    torch = _TORCH.match(software)
    if torch is not None:
        return "native" if (int(torch[1]), int(torch[2])) >= _PREFERS_CUDNN else "flash2"
    cudnn = _CUDNN.search(software)
    version = tuple(int(part) for part in cudnn.groups() if part)[:2] if cudnn is not None else (0, 0)
    if version >= _FOURTH_CUDNN or _FOURTH.search(software):
        return "flash4"
    if _TENSORRT.search(software):
        return "fmha2"
    return "native" if _NATIVE.search(software) else "flash2"


def replays(software: str) -> bool:
    """Return whether attention of *software* was timed by replaying a graph with that one call."""
    return _SERVING.match(software) is not None


def copied_besides(operator: Attention, software: str) -> int:
    """Return the number of elements that *software* copies before *operator*, within the measured time."""
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


def cache_warps(operator: Attention, software: str) -> int:
    """Return the warps in which *software* writes keys and values, each finding one token's place in the cache."""
    serving = _SERVING.match(software)
    if serving is None or serving[1].lower() != "vllm" or (int(serving[2]), int(serving[3])) >= _WRITES_APART:
        return 0
    threads = min(_MOST_THREADS, (operator.kv_heads or operator.heads) * operator.head_size)
    return operator.batch * operator.key_length * math.ceil(threads / 32)
