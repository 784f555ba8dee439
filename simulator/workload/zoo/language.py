"""Language models by name: ``language.json`` has the sizes of each family, and those in which each network differs.

GPT-3: arXiv 2005.14165, table 2.1; of its XL, which is to have 24 heads of 128 in a hidden size of 2048, all but the
number of heads, as 16 give the 1.3 billion parameters of the table; its 2.9b is not of the paper.  Megatron: arXiv
1909.08053, 2104.04473 (table 1) and 2205.05198 (table 3).  BLOOM: arXiv 2211.05100.  Mixtral: arXiv 2401.04088.
gpt-oss: arXiv 2508.10925.  Grok-1: xai-org/grok-1, run.py.  Nemotron-H: arXiv 2504.03624, table 1.  Nemotron-3: arXiv
2512.20848 and NVIDIA-NeMo/Megatron-Bridge, models/nemotronh.  Qwen, DeepSeek, Kimi, InternLM: the ``config.json`` of
each model.
"""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.package_data import own_data
from simulator.records import replace
from simulator.workload.zoo import Outputs, ZooEntry
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.encoders import T5, Encoder, encoder, t5
from simulator.workload.zoo.sizes import Decoder, Hybrid, LatentAttentionMixture, MixtureOfExperts
from simulator.workload.zoo.transformer import decoder

_OPTIONS = (
    *("hidden", "heads", "kv_heads", "layers", "inner", "vocabulary", "positions", "attention", "head", "tied"),
    *("target_length", "predicted", "experts", "chosen", "expert_inner", "shared_inner", "dense_layers", "head_size"),
    *("dropout", "mtp_layers", "gelu", "expert_kernels", "imbalance", "expert_capacity", "pad_capacity"),
)


def tokens_entry(model: Callable[..., Outputs], length: int, sizes: Decoder | Encoder | T5) -> ZooEntry:
    """Return the entry of *model* with *sizes*; *length*: its default sequence length in tokens."""
    fields = type(sizes).__dataclass_fields__
    own = {key: getattr(sizes, key) for key in _OPTIONS if key in fields and getattr(sizes, key) != ""}
    defaults = {"sequence_length": length, **own, "cross_entropy": "plain"}
    decodes = isinstance(sizes, Decoder)
    if not isinstance(sizes, Encoder):
        defaults |= {"lora": 0, "lora_layers": "attention", "lora_weights": "plain", "norms": "plain"}

    def make(net: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        chosen = replace(sizes, **{key: options[key] for key in own})
        if not isinstance(chosen, T5):
            chosen.check(options["sequence_length"])
        return model(net.input(batch, options["sequence_length"]), chosen)

    known = isinstance(sizes, Encoder) and sizes.head == "question-answering"
    without: dict[str, Any] = dict.fromkeys(own, 0)
    return ZooEntry(*("sequences", defaults, make), length_known=known, in_half=decodes, code=replace(sizes, **without))


_KINDS: Mapping[str, tuple[Callable[..., Outputs], type[Decoder] | type[Encoder] | type[T5]]] = {
    "encoder": (encoder, Encoder),
    "t5": (t5, T5),
    "decoder": (decoder, Decoder),
    "mixture": (decoder, MixtureOfExperts),
    "latent": (decoder, LatentAttentionMixture),
    "hybrid": (decoder, Hybrid),
}


def _entry(kind: str, length: int, **sizes: Any) -> ZooEntry:
    model, of = _KINDS[kind]
    return tokens_entry(model, length, of(**sizes))


_DATA = own_data("simulator.workload.zoo", "language.json")
_FAMILIES = _DATA["families"]
LANGUAGE: dict[str, ZooEntry] = {
    name: _entry(**{**_FAMILIES[own["like"]], **{size: value for size, value in own.items() if size != "like"}})
    for name, own in _DATA["networks"].items()
}
LANGUAGE_FAMILIES: dict[str, str] = {name: own["like"] for name, own in _DATA["networks"].items()}
"""The family of sizes of each network."""
WITH_BIASES: frozenset[str] = frozenset(name for name, own in _DATA["networks"].items() if "out_bias" in own)
"""Networks with more biases than their family."""
LANGUAGE_ALIASES: dict[str, str] = _DATA["aliases"]
