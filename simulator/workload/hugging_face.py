"""Networks from a Hugging Face ``config.json``, of families in ``hugging_face.json`` (docs/extending.md)."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, mention, nearest, one_line
from simulator.records import own_data
from simulator.topology.yaml_source import YamlSource, read_json
from simulator.workload.zoo import ZooEntry
from simulator.workload.zoo.language import language_entry
from simulator.workload.zoo.registry import entry_like

_DATA = own_data("simulator.workload", "hugging_face.json")
FAMILIES: Mapping[str, Mapping[str, Any]] = _DATA["families"]
POSITIONS: tuple[str, ...] = tuple(_DATA["positions"])
LONGEST = 8192  # default limit of a sequence, in tokens: models are trained on shorter ones than they accept
_MOST = 10**9
_FROM_ZERO = ("n_shared_experts", "first_k_dense_replace")
_TOLD = 12  # unknown keys; the others are counted
_MOST_LAYERS = 1024  # the zoo's limit too
# Keys that do not affect the time of a step.
_TIMELESS = frozenset(_DATA["timeless"])
# Values with which an unknown key has no effect.
_OFF: tuple[Any, ...] = (None, False, 0, 0.0, [], {}, "")


class OtherNetworkError(InputError):
    """The file is of a family, or has a setting, that is not built here; transformers may build it."""


class Config:
    """The keys of a file, its faults and notes so far, and ``length``, the sequence length (tokens) asked, or None."""

    def __init__(self, source: YamlSource, length: int | None) -> None:
        self._source = source
        self._data: Mapping[str, Any] = source.data
        self._read: set[str] = set()
        self._faults: list[Fault] = []
        self._others: list[Fault] = []
        self.length = length
        self.notes: list[Fault] = []

    def size(self, *names: str, default: int | None = None) -> int:
        """Return the integer under the first of *names* that is present; *default* if all are missing or null."""
        name = self._name(names)
        value = self._data.get(name)
        least, most = 0 if name in _FROM_ZERO else 1, _MOST_LAYERS if "layer" in name else _MOST
        if value is None and default is not None:
            return default
        if value is None:
            self._faults.append(self._source.fault((), f"{self._data['model_type']} needs the key '{name}'"))
        elif not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(name, f"must be a whole number, {least} to {most}; got {one_line(json.dumps(value), 40)}")
        else:
            return value
        return 1

    def flag(self, name: str, default: bool) -> bool:
        """Return the boolean under *name*."""
        value = self.value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, f"must be true or false; got {one_line(json.dumps(value), 40)}")
        return bool(value)

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value under *name*; *default* if it is missing or null."""
        self._read.add(name)
        value = self._data.get(name)
        return default if value is None else value

    def sizes(self, keys: Mapping[str, Sequence[str | int] | None]) -> dict[str, int]:
        """Return the integer of each of *keys*: names, as in :meth:`size`, and last the default of a missing key."""
        found = {}
        for size, key in keys.items():
            if key is not None:
                names = [each for each in key if isinstance(each, str)]
                found[size] = self.size(*names, default=key[-1] if isinstance(key[-1], int) else None)
        return found

    def only(self, missing: Any = None, **allowed: Sequence[Any]) -> None:
        """Record a fault for each key whose value is not the one, or among those, *allowed*: it is another network.

        *missing*: the value of a missing key; by default the first that is allowed.
        """
        for name, listed in allowed.items():
            value = self.value(name, listed[0] if missing is None else missing)
            if value not in listed:
                words = " or ".join(map(_shown, listed))
                self.another(name, f"{_shown(value)} is not modelled; {words} is")

    def usual(self, **allowed: Sequence[Any]) -> None:
        """Add a note on each key whose value is not among those *allowed*, of which the first is simulated."""
        for name, listed in allowed.items():
            value = self.value(name, listed[0])
            if value not in listed:
                self.note(name, f"{_shown(value)} is not modelled; simulated as {_shown(listed[0])}")

    def ignored(self, *names: str) -> None:
        """Take the keys *names* as read: they change nothing that is simulated."""
        self._read.update(names)

    def refuse(self, name: str, message: str) -> None:
        """Record a fault of the key *name*."""
        self._faults.append(self._source.fault((name,), f"{name}: {message}"))

    def another(self, name: str, message: str) -> None:
        """Record a fault of the key *name*, whose value makes it a network that is not built here."""
        self._others.append(self._source.fault((name,), f"{name}: {message}"))

    def note(self, name: str, message: str) -> None:
        """Add a note on the key *name*."""
        self.notes.append(self._source.fault((name,), f"{name}: {message}"))

    def tokens(self, positions: int, name: str) -> int:
        """Return the default sequence length in tokens: *positions* (the key *name*), but at most 8,192."""
        if positions > LONGEST and self.length is None:
            self.note(name, f"sequences of {LONGEST:,} tokens are simulated; {mention('seq_len')} says another length")
        return min(positions, LONGEST)

    def window(self, length: int, layers: int, usual: bool) -> dict[str, int]:
        """Return the sizes of a sliding window that is shorter than a sequence of *length* tokens, in *layers* blocks.

        ``layer_types`` or ``sliding_window_pattern`` say which blocks have it; a note, where none of ours is like it.
        *usual*: whether it is used where ``use_sliding_window`` is missing.
        """
        uses = self.flag("use_sliding_window", usual)
        window, skip = self.size("sliding_window", default=_MOST), self.size("sliding_window_pattern", default=0)
        first, types = self.value("max_window_layers", 0), self.value("layer_types", [])
        if not isinstance(types, list):
            self.refuse("layer_types", f"must be a list; got {one_line(json.dumps(types), 40)}")
            return {}
        if not uses or window >= (self.length or length):
            return {}
        if types:
            full = [number for number, kind in enumerate(types, 1) if kind != "sliding_attention"]
            skip = full[0] if full else 0
            alike = full == ([*range(skip, layers + 1, skip)] if skip else [])
        else:
            alike = not first
        if skip == 1 or (not types and first and first >= layers):
            return {}
        if not alike:
            self.note("sliding_window", f"{window:,} in some of its blocks is not modelled; attention reads all tokens")
            return {}
        told = f"fused attention reads {window:,} keys, as FlashAttention does; sdpa reads all and hides the others"
        self.note("sliding_window", f"{told}: {mention('sizes', 'window=0')}")
        return {"window": window, "window_skip": skip}

    def finish(self) -> None:
        """Add notes on keys that nothing has read; raises InputError with all faults, or OtherNetworkError."""
        if self._faults or self._others:
            kind = InputError if self._faults else OtherNetworkError
            found = {*self._faults, *self._others}
            raise kind(sorted(found, key=lambda fault: (fault.line, fault.column, fault.message)))
        known = self._read | _TIMELESS
        unread = [
            name
            for name, value in self._data.items()
            if name not in known and not any(value is off or value == off for off in _OFF)
        ]
        for name in unread[:_TOLD]:
            if name == "quantization_config":
                self.note(name, f"is not modelled; parameters are in the format of {mention('precision')}")
                continue
            hint = nearest(name, self._read, listed=0)
            near = f"; {hint}" if hint.startswith("did") else ""
            message = f"{one_line(name, 60)}: is not known and has no effect{near}"
            self.notes.append(self._source.fault((name,), message, key=True))
        if len(unread) > _TOLD:
            more = f"{len(unread) - _TOLD:,} more keys from here on are not known and have no effect"
            self.notes.append(self._source.fault((unread[_TOLD],), more, key=True))

    def _name(self, names: tuple[str, ...]) -> str:
        self._read.update(names)
        return next((name for name in names if self._data.get(name) is not None), names[0])


def _shown(value: Any) -> str:
    """Return *value* as the file writes it."""
    return one_line(json.dumps(value), 60)


def _entry(kind: str, c: Config) -> ZooEntry:
    """Return the network of *kind* with the sizes of *c*, which takes the faults and notes."""
    own = FAMILIES[kind]
    family = own.get("like", kind)
    base = FAMILIES[family]
    said = {**base, **own, "kind": kind, "sizes": {**base["sizes"], **own.get("sizes", {})}}
    sizes: dict[str, Any] = {**said.get("fixed", {}), **c.sizes(said["sizes"])}
    if "tied" in said:
        sizes["tied"] = int(c.flag("tie_word_embeddings", said["tied"]))
    if "drops" in said:
        sizes["dropout"] = _drops(c, said["drops"], said.get("drop_rate", 0.1))
    for size, (key, words, other) in said.get("by_word", {}).items():
        sizes[size] = words.get(str(c.value(key)), other)
    c.usual(**said.get("usual", {}))
    c.only(**said.get("only", {}))
    for key, (size, times, missing) in said.get("equal", {}).items():
        c.only(missing, **{key: [times * sizes[size]]})
    c.ignored(*said.get("ignored", ()))
    if family in _ODD:
        _ODD[family](c, said, sizes)
    rate = said.get("always_drops")
    if rate and not c.value(rate, 0.1):
        c.note(rate, "0 is not modelled; simulated with dropout")
    if kind == "vit":
        options = {"attention": "fused", "dropout": sizes.pop("dropout")}
        return entry_like("images", "encoders.vit", options=options, **sizes)
    length = sizes.pop("length", sizes.get("positions"))
    if "as" not in said and kind != "bloom":  # whose positions have no end
        length = c.tokens(length, (said["sizes"].get("length") or said["sizes"]["positions"])[0])
    if said.get("windowed"):
        sizes |= c.window(length, sizes["layers"], said["windowed"] != "if said")
    kinds = {"kv_rank": "latent", "pattern": "hybrid", "experts": "mixture"}
    of = said.get("as") or next((of for size, of in kinds.items() if size in sizes), "decoder")
    return language_entry(of, length, **sizes)


def _drops(c: Config, names: list[str], default: float) -> int:
    """Return 1 if any rate of *names* is above 0, so dropout is simulated; adds a note if the rates are mixed."""
    rates = {name: c.value(name, default) for name in names}
    if len({bool(rate) for rate in rates.values()}) > 1:
        name = next(name for name, rate in rates.items() if not rate)
        c.note(name, "0 is not modelled beside others that are not; simulated with dropout")
    return int(any(rates.values()))


# -- what families have that no list of keys says ---------------------------------------------


def _opt(c: Config, _: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    words, first = c.size("word_embed_proj_dim", default=sizes["hidden"]), c.flag("do_layer_norm_before", True)
    sizes |= {"word_size": words if words != sizes["hidden"] else 0, "norm_last": not first}
    if first:
        c.only(_remove_final_layer_norm=[False])


def _mpt(c: Config, _: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    attention = c.value("attn_config", {})
    if not isinstance(attention, dict):
        c.refuse("attn_config", f"must be a mapping; got {one_line(attention, 40)}")
        attention = {}
    if not attention.get("alibi", True):
        c.refuse("attn_config", "alibi: false is not modelled by transformers either; true is")
    for name in ("qk_ln", "clip_qkv", "prefix_lm"):
        if attention.get(name):
            c.note("attn_config", f"{name} is not modelled")
    sizes["inner"] = c.size("expansion_ratio", default=4) * sizes["hidden"]
    c.flag("no_bias", True)


def _llama(c: Config, said: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    """Add what Llama's kind says of heads and biases; of experts, the leading blocks without them."""
    kind, hidden, heads, usual = said["kind"], sizes["hidden"], sizes["heads"], said.get("head_size")
    own = hidden // heads
    size = c.size("head_dim", default=usual or own)
    if hidden % heads and usual is None and c.value("head_dim") is None:
        told = f"{heads} heads do not divide a hidden size of {hidden}; head_dim says their size"
        c.refuse("num_attention_heads", told)
    sizes["kv_heads"] = c.size("num_key_value_heads", default=said.get("kv_heads", heads))
    sizes["head_size"] = 0 if size == own and not hidden % heads else size
    if said["biases"] is not None:
        sizes["qkv_bias"] = sizes["out_bias"] = c.flag("attention_bias", said["biases"])
    if kind == "qwen2_moe":
        sizes["qkv_bias"] = c.flag("qkv_bias", True)
    if kind in ("qwen2_moe", "qwen3_moe"):
        c.only(decoder_sparse_step=[1])
        dense = c.value("mlp_only_layers", [])
        sizes["dense_layers"] = len(dense) if isinstance(dense, list) else 0
        if dense != list(range(sizes["dense_layers"])):
            told = f"{one_line(dense, 40)} is not modelled; the first layers (0, 1, ...) or none are"
            c.another("mlp_only_layers", told)
    if kind == "gpt_oss":
        kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(sizes["layers"])]
        if c.value("layer_types", kinds) != kinds:
            c.another("layer_types", "must alternate, sliding_attention first; other orders are not modelled")


def _deepseek(c: Config, _: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    sizes["shared_inner"] *= sizes["expert_inner"]
    if c.value("num_nextn_predict_layers"):
        left_out = "layers that predict a second token are left out, as transformers does"
        c.note("num_nextn_predict_layers", f"{left_out}; {mention('sizes', 'mtp_layers=1')} adds one")


def _nemotron_h(c: Config, _: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    sizes["pattern"] = str(c.value("hybrid_override_pattern", ""))
    if not re.fullmatch(f"[M*E-]{{{sizes['layers']}}}", sizes["pattern"]):
        c.refuse("hybrid_override_pattern", f"must be a letter for each of {sizes['layers']} layers: M, *, E or -")


def _bert(c: Config, said: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    listed = c.value("architectures", [])
    named = str(listed[0]) if isinstance(listed, list) and listed else ""
    if listed and named not in said["heads"]:
        shown = one_line(named or listed, 40)
        c.note("architectures", f"{shown} is simulated with the head of BertForPreTraining")
    sizes["head"] = said["heads"].get(named, "auto")
    c.usual(hidden_act=["gelu"])


def _vit(c: Config, _: Mapping[str, Any], sizes: dict[str, Any]) -> None:
    labels = c.value("id2label", {"0": "", "1": ""})
    sizes["classes"] = c.size("num_labels", default=len(labels) if isinstance(labels, dict) and labels else 2)


_ODD: dict[str, Callable[[Config, Mapping[str, Any], dict[str, Any]], None]] = {
    "opt": _opt,
    "mpt": _mpt,
    "llama": _llama,
    "deepseek_v3": _deepseek,
    "nemotron_h": _nemotron_h,
    "bert": _bert,
    "vit": _vit,
}


def source_of(text: str) -> YamlSource:
    """Return the file *text*, or the ``config.json`` of the folder; raises InputError if it cannot be read."""
    path = Path(text)
    return read_json(path / "config.json" if os.path.isdir(path) else path, "config.json")


def read_config(text: str, *, sequence_length: int | None = None) -> tuple[ZooEntry, tuple[Fault, ...]]:
    """Return the network of *text*, a file or a folder with a ``config.json``, and a note on all that is not simulated.

    *sequence_length*: tokens in a sequence; by default the model's own maximum, up to 8,192.

    Raises InputError with every fault of the file and its position: a missing file, invalid JSON, an unknown model
    type, a missing key, a setting that is not modelled.
    """
    source = source_of(text)
    kind = source.data.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        key = ("model_type",) if "model_type" in source.data else ()
        said = f"no model_type '{one_line(kind, 40)}' is known" if key else "needs the key 'model_type'"
        if isinstance(named := source.data.get("_class_name"), str):  # diffusers
            told = f"{one_line(named, 40)} of diffusers is not read; a torch: factory gives it with its inputs"
            raise InputError(source.fault(("_class_name",), told))
        fault = source.fault(key, f"{said}; {nearest(str(kind), FAMILIES, listed=20)}")
        if not isinstance(kind, str):
            raise InputError(fault)
        told = "sequences of text alone are simulated, without images and the layers that read them"
        reads = {"vision_config", "text_config"} <= source.data.keys() and not kind.startswith(("clip", "siglip"))
        texts = source.fault(("vision_config",), f"vision_config: {told}", key=True)
        raise OtherNetworkError([fault, texts] if reads else fault)
    config = Config(source, sequence_length)
    entry = _entry(kind, config)
    config.finish()
    return entry, tuple(config.notes)
