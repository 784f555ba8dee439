"""Language models by name: the sizes of each family.

GPT-3: arXiv 2005.14165, table 2.1; of its XL, which is to have 24 heads of 128 in a hidden size of 2048, all but the
number of heads, as 16 give the 1.3 billion parameters of the table.  Megatron: arXiv 1909.08053, 2104.04473 (table 1)
and 2205.05198 (table 3). BLOOM: arXiv 2211.05100. Mixtral: arXiv 2401.04088. gpt-oss: arXiv 2508.10925. Nemotron-3:
arXiv 2512.20848 and NVIDIA-NeMo/Megatron-Bridge, models/nemotronh. Qwen, DeepSeek, Kimi, InternLM: the ``config.json``
of each model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from simulator.workload.zoo import Outputs, ZooEntry
from simulator.workload.zoo.bert import Encoder, encoder
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.sizes import Decoder, Hybrid, LatentAttentionMixture, MixtureOfExperts
from simulator.workload.zoo.t5 import T5, t5
from simulator.workload.zoo.transformer import decoder

_OPTIONS = (
    *("hidden", "heads", "kv_heads", "layers", "inner", "vocabulary", "positions", "attention", "head", "tied"),
    *("target_length", "predicted", "experts", "chosen", "expert_inner", "shared_inner", "dense_layers", "head_size"),
    *("dropout", "mtp_layers", "gelu"),
)


def tokens_entry(model: Callable[..., Outputs], length: int, sizes: Decoder | Encoder | T5) -> ZooEntry:
    """Return the entry of *model* with *sizes*; *length*: its default sequence length in tokens."""
    fields = type(sizes).__dataclass_fields__
    own = {key: getattr(sizes, key) for key in _OPTIONS if key in fields and getattr(sizes, key) != ""}
    defaults = {"sequence_length": length, **own, "cross_entropy": "plain"}
    decodes = isinstance(sizes, Decoder)
    if not isinstance(sizes, Encoder):
        defaults |= {"lora": 0, "lora_layers": "attention", "lora_weights": "plain"}

    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        chosen = replace(sizes, **{key: options[key] for key in own})
        if not isinstance(chosen, T5):
            chosen.check(options["sequence_length"])
        return model(b, b.input(batch, options["sequence_length"]), chosen)

    known = isinstance(sizes, Encoder) and sizes.head == "question-answering"
    without: dict[str, Any] = dict.fromkeys(own, 0)
    return ZooEntry(*("sequences", defaults, make), length_known=known, in_half=decodes, code=replace(sizes, **without))


_encoder = partial(tokens_entry, encoder)


def _of(
    kind: type[Decoder], family: str, words: int, length: int, hidden: int, heads: int, layers: int, **sizes: Any
) -> ZooEntry:
    """Return a decoder of *family* for sequences of *length* tokens out of *words*."""
    return tokens_entry(decoder, length, kind(family, hidden, heads, layers, words, **sizes))  # type: ignore[arg-type]


def _gpt2(*shape: int, length: int = 1024) -> ZooEntry:
    return _of(Decoder, "gpt2", 50257, length, *shape, positions=length, gelu="eager")


def _megatron(*shape: int, length: int = 2048) -> ZooEntry:
    return _of(Decoder, "gpt", 51200, length, *shape, attention="fused-softmax", gelu="fused")


_gpt3 = partial(_gpt2, length=2048)
_opt = partial(_of, Decoder, "opt", 50272, 2048, positions=2048, spare_positions=2)  # spare rows of its position table
_mpt = partial(_of, Decoder, "mpt", 50368, 2048, attention="fused", dropout=0, gelu="fused")
_bloom = partial(_of, Decoder, "bloom", 250880, 2048, dropout=0, gelu="fused")


def _llama(*shape: int, words: int = 32000, length: int = 4096, **sizes: Any) -> ZooEntry:
    """Return a Llama-like model; *shape*: hidden size, heads, layers, and width of the feed-forward layers."""
    *rest, inner = shape
    return _of(Decoder, "llama", words, length, *rest, inner=inner, **{"attention": "fused", "tied": 0, **sizes})


_qwen2 = partial(_llama, words=152064, qkv_bias=True)
_qwen3 = partial(_llama, words=151936, kv_heads=8, head_size=128, qk_norm=True)


def _mixture(words: int, *shape: int, kind: type[MixtureOfExperts] = MixtureOfExperts, **sizes: Any) -> ZooEntry:
    return _of(kind, "llama", words, 4096, *shape, attention="fused", tied=0, **sizes)


_mixtral = partial(_mixture, kv_heads=8, experts=8, chosen=2)
_qwen3_mixture = partial(_mixture, 151936, kv_heads=4, experts=128, chosen=8, head_size=128, qk_norm=True)
_GPT_OSS: dict[str, Any] = {
    "head_size": 64,
    "qkv_bias": True,
    "out_bias": True,
    "window": 128,
    "sinks": True,
    "expert_bias": True,
}
_gpt_oss = partial(_mixture, 201088, 2880, 64, kv_heads=8, chosen=4, expert_inner=2880, **_GPT_OSS)
_deepseek = partial(_mixture, kind=LatentAttentionMixture)


def _nemotron(hidden: int, *shape: int, kv_heads: int = 8) -> ZooEntry:
    sizes: dict[str, Any] = {"inner": 4 * hidden, "kv_heads": kv_heads, "attention": "fused", "tied": 0}
    return _of(Decoder, "nemotron", 256000, 4096, hidden, *shape, **sizes)


def _nemotron_h(hidden: int, pattern: str, **sizes: Any) -> ZooEntry:
    common: dict[str, Any] = {"kv_heads": 2, "head_size": 128, "attention": "fused", "tied": 0, "gated": False}
    return _of(Hybrid, "nemotron_h", 131072, 8192, hidden, 32, len(pattern), pattern=pattern, **common, **sizes)


def _t5(*sizes: int) -> ZooEntry:
    return tokens_entry(t5, 512, T5(*sizes))


_LLAMA3 = {"kv_heads": 8, "words": 128256, "length": 8192}
_DEEPSEEK3: dict[str, Any] = {"chosen": 8, "expert_inner": 2048, "shared_inner": 2048, "query_rank": 1536}
LANGUAGE: dict[str, ZooEntry] = {
    "bert-base": _encoder(512, Encoder(768, 12, 12, 30522)),
    "bert-large": _encoder(512, Encoder(1024, 16, 24, 30522)),
    "bert-base-squad": _encoder(384, Encoder(768, 12, 12, 30522, head="question-answering")),
    "bert-large-squad": _encoder(384, Encoder(1024, 16, 24, 30522, head="question-answering")),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 16, 24),
    "gpt2-large": _gpt2(1280, 20, 36),
    "gpt2-xl": _gpt2(1600, 25, 48),
    "gpt": _megatron(1024, 16, 24, length=1024),
    "gpt3-125m": _gpt3(768, 12, 12),
    "gpt3-350m": _gpt3(1024, 16, 24),
    "gpt3-760m": _gpt3(1536, 16, 24),
    "gpt3-1.3b": _gpt3(2048, 16, 24),
    "gpt3-2.7b": _gpt3(2560, 32, 32),
    "gpt3-2.9b": _gpt3(3072, 24, 24),  # not the paper's
    "gpt3-6.7b": _gpt3(4096, 32, 32),
    "gpt3-13b": _gpt3(5120, 40, 40),
    "gpt3-175b": _gpt3(12288, 96, 96),
    "megatron-1.2b": _megatron(1536, 16, 40, length=1024),
    "megatron-2.5b": _megatron(1920, 20, 54, length=1024),
    "megatron-4.2b": _megatron(2304, 24, 64, length=1024),
    "megatron-8.3b": _megatron(3072, 32, 72, length=1024),
    "megatron-1.7b": _megatron(2304, 24, 24),
    "megatron-3.6b": _megatron(3072, 32, 30),
    "megatron-7.5b": _megatron(4096, 32, 36),
    "megatron-18b": _megatron(6144, 48, 40),
    "megatron-22b": _megatron(6144, 64, 48),
    "megatron-39b": _megatron(8192, 64, 48),
    "megatron-76b": _megatron(10240, 80, 60),
    "megatron-145b": _megatron(12288, 96, 80),
    "megatron-175b": _megatron(12288, 96, 96),
    "megatron-310b": _megatron(16384, 128, 96),
    "megatron-530b": _megatron(20480, 128, 105),
    "megatron-1t": _megatron(25600, 160, 128),
    "opt-125m": _opt(768, 12, 12),
    "opt-350m": _opt(1024, 16, 24, word_size=512, norm_last=True),
    "opt-1.3b": _opt(2048, 32, 24),
    "opt-2.7b": _opt(2560, 32, 32),
    "opt-6.7b": _opt(4096, 32, 32),
    "opt-13b": _opt(5120, 40, 40),
    "opt-30b": _opt(7168, 56, 48),
    "opt-66b": _opt(9216, 72, 64),
    "opt-175b": _opt(12288, 96, 96),
    "mpt-125m": _mpt(768, 12, 12),
    "mpt-350m": _mpt(1024, 16, 24),
    "mpt-760m": _mpt(1536, 12, 24),
    "mpt-1b": _mpt(2048, 16, 24),
    "mpt-3b": _mpt(2560, 20, 32),
    "mpt-7b": _mpt(4096, 32, 32),
    "mpt-13b": _mpt(5120, 40, 40),
    "mpt-30b": _mpt(7168, 56, 48),
    "mpt-70b": _mpt(8192, 64, 80),
    "bloom-560m": _bloom(1024, 16, 24),
    "bloom-1.1b": _bloom(1536, 16, 24),
    "bloom-1.7b": _bloom(2048, 16, 24),
    "bloom-3b": _bloom(2560, 32, 30),
    "bloom-7.1b": _bloom(4096, 32, 30),
    "bloom-176b": _bloom(14336, 112, 70),
    "llama-7b": _llama(4096, 32, 32, 11008, length=2048),
    "llama-13b": _llama(5120, 40, 40, 13824, length=2048),
    "llama-33b": _llama(6656, 52, 60, 17920, length=2048),
    "llama-65b": _llama(8192, 64, 80, 22016, length=2048),
    "llama2-7b": _llama(4096, 32, 32, 11008),
    "llama2-13b": _llama(5120, 40, 40, 13824),
    "llama2-70b": _llama(8192, 64, 80, 28672, kv_heads=8),
    "llama3-8b": _llama(4096, 32, 32, 14336, **_LLAMA3),
    "llama3-70b": _llama(8192, 64, 80, 28672, **_LLAMA3),
    "llama3-405b": _llama(16384, 128, 126, 53248, **_LLAMA3),
    "internlm-7b": _llama(4096, 32, 32, 11008, words=103168, length=2048, qkv_bias=True, out_bias=True),
    "qwen-7b": _qwen2(4096, 32, 32, 11008, kv_heads=32, words=151936),
    "qwen2-7b": _qwen2(3584, 28, 28, 18944, kv_heads=4),
    "qwen2.5-32b": _qwen2(5120, 40, 64, 27648, kv_heads=8),
    "qwen2-72b": _qwen2(8192, 64, 80, 29568, kv_heads=8),
    "qwen3-8b": _qwen3(4096, 32, 36, 12288),
    "qwen3-32b": _qwen3(5120, 64, 64, 25600),
    "qwen3-30b-a3b": _qwen3_mixture(2048, 32, 48, expert_inner=768),
    "qwen3-235b-a22b": _qwen3_mixture(4096, 64, 94, expert_inner=1536),
    "gpt-oss-20b": _gpt_oss(24, experts=32),
    "gpt-oss-120b": _gpt_oss(36, experts=128),
    "mixtral-8x7b": _mixtral(32000, 4096, 32, 32, expert_inner=14336),
    "mixtral-8x22b": _mixtral(32768, 6144, 48, 56, expert_inner=16384),
    "deepseek-v2-lite": _deepseek(
        *(102400, 2048, 16, 27), inner=10944, experts=64, chosen=6, expert_inner=1408, shared_inner=2816, dense_layers=1
    ),
    "deepseek-v2": _deepseek(
        *(102400, 5120, 128, 60),
        inner=12288,
        experts=160,
        chosen=6,
        expert_inner=1536,
        shared_inner=3072,
        dense_layers=1,
        query_rank=1536,
    ),
    "deepseek-v3": _deepseek(129280, 7168, 128, 61, inner=18432, experts=256, dense_layers=3, **_DEEPSEEK3),
    "kimi-k2": _deepseek(163840, 7168, 64, 61, inner=18432, experts=384, dense_layers=1, **_DEEPSEEK3),
    "t5-small": _t5(512, 8, 6, 2048),
    "t5-base": _t5(768, 12, 12, 3072),
    "t5-large": _t5(1024, 16, 24, 4096),
    "t5-3b": _t5(1024, 32, 24, 16384, 128),
    "t5-11b": _t5(1024, 128, 24, 65536, 128),
    "nemotron3-8b": _nemotron(4096, 32, 32, kv_heads=32),
    "nemotron4-15b": _nemotron(6144, 48, 32),
    "nemotron4-340b": _nemotron(18432, 96, 96),
    "nemotron-3-nano": _nemotron_h(
        *(2688, "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
        experts=128,
        chosen=6,
        expert_inner=1856,
        shared_inner=3712,
    ),
    "nemotron-3-super": _nemotron_h(
        *(4096, "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"),
        experts=512,
        chosen=22,
        expert_inner=2688,
        shared_inner=5376,
        expert_latent=1024,
        mamba_heads=128,
    ),
}
LANGUAGE_ALIASES = {
    "bert": "bert-base",
    "gpt2-small": "gpt2",
    "gpt3": "gpt3-175b",
    "gpt3-small": "gpt3-125m",
    "gpt3-medium": "gpt3-350m",
    "gpt3-large": "gpt3-760m",
    "gpt3-xl": "gpt3-1.3b",
    **{f"gpt3-{size}b": f"megatron-{size}b" for size in ("1.7", "3.6", "7.5", "18", "22", "39", "76", "145", "310")},
    "gpt3-530b": "megatron-530b",
    "gpt3-1t": "megatron-1t",
    "gpt-1.3b": "gpt3-1.3b",
    "gptoss-20b": "gpt-oss-20b",
    "gptoss-120b": "gpt-oss-120b",
    "mt-nlg-530b": "megatron-530b",
    "bloom": "bloom-176b",
    "bloom-7b1": "bloom-7.1b",
    "llama-30b": "llama-33b",
    "maxtext-llama2-70b": "llama2-70b",
    "maxtext-llama3-70b": "llama3-70b",
    "llama-3.1-8b": "llama3-8b",
    **{f"llama3.1-{size}": f"llama3-{size}" for size in ("8b", "70b", "405b")},
    "llama31-405b": "llama3-405b",
    "qwen2.5-7b": "qwen2-7b",
    "qwen2.5-72b": "qwen2-72b",
    "deepseekv3": "deepseek-v3",
    "deepseek-r1": "deepseek-v3",
    "nemotron-8b": "nemotron3-8b",
    "nemotron-340b": "nemotron4-340b",
    "nemotron-3-nano-30b-a3b": "nemotron-3-nano",
    "nemotron-3-super-120b-a12b": "nemotron-3-super",
}
