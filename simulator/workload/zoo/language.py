"""Language models by name: ``language.json`` has the sizes (docs/decisions/zoo.md)."""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.records import own_data, replace
from simulator.workload.zoo import Outputs, ZooEntry
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.encoders import T5, Encoder, encoder, t5
from simulator.workload.zoo.sizes import Decoder, Hybrid, LatentAttentionMixture, MixtureOfExperts
from simulator.workload.zoo.transformer import decoder

_DATA = own_data("simulator.workload.zoo", "language.json")
_KINDS: Mapping[str, tuple[Callable[..., Outputs], type[Decoder] | type[Encoder] | type[T5]]] = {
    "encoder": (encoder, Encoder),
    "t5": (t5, T5),
    "decoder": (decoder, Decoder),
    "mixture": (decoder, MixtureOfExperts),
    "latent": (decoder, LatentAttentionMixture),
    "hybrid": (decoder, Hybrid),
}


def language_entry(kind: str, length: int, **said: Any) -> ZooEntry:
    """Return the entry of a network of *kind* with sizes *said*; *length*: its default sequence length in tokens."""
    model, of = _KINDS[kind]
    sizes = of(**said)
    fields = type(sizes).__dataclass_fields__
    own = {key: getattr(sizes, key) for key in _DATA["options"] if key in fields and getattr(sizes, key) != ""}
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


_FAMILIES = _DATA["families"]
LANGUAGE: dict[str, ZooEntry] = {
    name: language_entry(**{**_FAMILIES[own["like"]], **{size: value for size, value in own.items() if size != "like"}})
    for name, own in _DATA["networks"].items()
}
LANGUAGE_FAMILIES: dict[str, str] = {name: own["like"] for name, own in _DATA["networks"].items()}
"""The family of sizes of each network."""
WITH_BIASES: frozenset[str] = frozenset(name for name, own in _DATA["networks"].items() if "out_bias" in own)
"""Networks with more biases than their family."""
