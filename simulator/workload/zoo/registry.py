"""Networks by name: ``build_network("resnet50", batch=32)``; ``networks.json`` and ``language.json`` list them."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, get_args

from simulator.errors import InputError, nearest, one_line
from simulator.records import own_data, replace
from simulator.workload.network import Network
from simulator.workload.zoo import Outputs, ZooEntry, called
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, pair


def entry_like(kind: str, model: str, *, length_known: bool = False, **said: Any) -> ZooEntry:
    """Return the entry of *model*, a function of a file, whose inputs are of *kind*.

    *said*: its sizes, as ``networks.json`` has them; of networks of images, ``options`` are those that may change.
    """
    if kind in ("images", "volumes"):
        channels = said.pop("channels", 3 if kind == "images" else 1)
        of_images = {"image": said.pop("image", 224), "classes": said.pop("classes", 1000)}
        defaults = of_images | said.pop("options", {})
    else:  # sequences of so many tokens, or samples whose inputs the model makes
        defaults = {**({"sequence_length": said.pop("length")} if kind == "sequences" else {}), **said}

    def make(net: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        build: Callable[..., Outputs] = _named(f"zoo.{model}")
        if kind == "samples":
            return build(net, batch, **options)
        if kind == "sequences":
            given = {name: value for name, value in options.items() if name != "sequence_length"}
            return build(net.input(batch, options["sequence_length"]), **given)
        side = options["image"]
        if kind == "volumes" and not isinstance(side, int):
            raise SizeError("a volume has one side; got height and width")
        sides = (side, side, side) if kind == "volumes" else pair(side)
        given = {name: value for name, value in options.items() if name not in of_images}
        return build(net.input(batch, channels, *sides), options["classes"], **said, **given)

    return ZooEntry("images" if kind == "volumes" else kind, defaults, make, length_known=length_known)


def _named(place: str) -> Any:
    """Return what *place* names in a file of ``simulator/workload``, which is loaded when it is needed."""
    file, _, name = place.rpartition(".")
    return getattr(import_module(f"simulator.workload.{file}"), name)


_DATA = own_data("simulator.workload.zoo", "networks.json")


def _entries_of(place: str) -> dict[str, ZooEntry]:
    """Return the networks that ``networks.json`` has at *place* of the list: all but transformers."""
    found = {}
    for name, written in _DATA[place].items():
        said: dict[str, Any] = {key: tuple(size) if isinstance(size, list) else size for key, size in written.items()}
        found[name] = entry_like(said.pop("as"), **said)
    return found


_FIRST = _entries_of("first")
_BREAK = re.compile(r"(?<=[a-z])-(?=[0-9])")
_USE = re.compile(r"-(sft|pretrain|pretraining|finetune|finetuning|instruct|chat|hf)$")
_LISTED = {"widths", "cutoffs", "documents"}
_LIST = re.compile(r"\s*\d{1,18}\s*(,\s*\d{1,18}\s*)*", re.ASCII)
_MAX_SIZE = 10**9


@cache
def _entries() -> Mapping[str, ZooEntry]:
    """Return all networks by name, for which transformers are loaded."""
    from simulator.workload.zoo.language import LANGUAGE

    return {**_FIRST, **LANGUAGE, **_entries_of("last")}


def spelling(name: str) -> str:
    """Return what all spellings of *name* have in common: no capitals, and no break between letters and a number.

    ``Llama_3.1 70B`` and ``llama3.1-70b`` are one, ``gpt3-1.3b`` and ``gpt3-13b`` are two.
    """
    return _BREAK.sub("", re.sub(r"[_ ]", "-", name.strip().lower()))


@cache
def _spelt() -> Mapping[str, str]:
    """Return every network and alias by its spelling."""
    return {spelling(name): name for name in (*network_aliases(), *_entries())}


def network_aliases() -> Mapping[str, str]:
    """Return the other names of networks, with the network that each stands for."""
    found: Mapping[str, str] = _DATA["aliases"]
    return found


def network_names() -> list[str]:
    """Return the names of the zoo, without aliases."""
    return list(_entries())


def entry_of(name: str) -> ZooEntry | None:
    """Return the entry for *name* or an alias, in any spelling, or None.

    What a name says of a use is passed over: ``llama2-7b-sft`` is a Llama 2 7B that is fine-tuned.
    """
    spelt = spelling(name)
    entry = _FIRST.get(_DATA["aliases"].get(spelt, spelt))
    if entry is None:
        found = _spelt().get(spelt) or _spelt().get(_USE.sub("", spelt), "")
        entry = _entries().get(network_aliases().get(found, found))
    return entry


def find_entry(name: str) -> ZooEntry:
    """Return the entry of :func:`entry_of`; raises InputError, with the nearest name, if there is none."""
    entry = entry_of(name)
    if entry is None:
        why = why_not_built(name)
        hint = f"it is not built in: {why}" if why else nearest_network(name, listed=8)
        raise InputError(f"no network is called '{one_line(name, 60)}'; {hint}")
    return entry


def why_not_built(name: str) -> str:
    """Return why the published network *name* is not in the zoo; empty if that is not known."""
    lowered = name.strip().lower()
    reasons = (("[-_ ]?".join(start.replace("-", "")), why) for start, why in _DATA["not_built"].items())
    return next((why for start, why in reasons if re.match(rf"{start}(?![a-z])", lowered)), "")


def nearest_network(name: str, listed: int) -> str:
    """Return a hint at the networks of the zoo in place of *name*, as :func:`simulator.errors.nearest` does."""
    return nearest(name, _entries(), listed, aliases=network_aliases())


def build_network(name: str, *, batch: int, training: bool = True, loss: bool = False, **options: Any) -> Network:
    """Return the network called *name* for a batch of *batch* samples.

    *name*: one of :func:`network_names`, or an alias.
    *batch*: images or sequences.
    *training*: include dropout and layers that exist only in training.
    *loss*: append the cross-entropy.
    *options*: ``image`` (a side, or height and width) and ``classes`` for image networks; ``sequence_length``,
        ``hidden``, ``heads``, ``layers``, ``vocabulary``, ``attention``, ... for sequence networks; ``inputs`` and
        ``widths`` for perceptrons.  None stands for the network's own value.

    Raises InputError if there is no such network, if an option does not apply to it, or if a size does not fit.
    """
    return build_entry(name, find_entry(name), batch=batch, training=training, loss=loss, **options)


def build_entry(
    name: str, entry: ZooEntry, *, batch: int, training: bool = True, loss: bool = False, **options: Any
) -> Network:
    """Return the network of *entry*, under the name *name*; otherwise as :func:`build_network`."""
    given = {key: value for key, value in options.items() if value is not None}
    for key in given.keys() & _LISTED:
        listed = given[key]
        if isinstance(listed, str) and _LIST.fullmatch(listed):  # as a command line writes them: 2048,512,1
            given[key] = tuple(map(int, listed.split(",")))
        elif type(listed) is int:
            given[key] = (listed,)
    for key, value in {"batch": batch, **given}.items():
        if key != "batch" and key not in entry.defaults:
            hint = nearest(key, ["batch", *entry.defaults])
            raise InputError(f"{name}: {one_line(key, 60)} does not apply to this network; {hint}")
        _check(name, key, value)
    sizes = {**entry.defaults, **given}
    builder = NetworkBuilder(name, training=training)
    try:
        outputs = entry.make(builder, batch, sizes)
    except SizeError as error:
        raise InputError(f"{name}: {error}") from None
    if loss:
        for i, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            output.cross_entropy(f"loss{i or ''}")
    network = replace(builder.build(batch, entry.sample), own_name=called(name, entry, sizes, _entries))
    if given.get("lora_weights", "plain") != "plain" and not given.get("lora"):
        raise InputError(f"{name}: lora_weights is about the frozen weights beside adapters; add lora=16")
    way: Any = given.get("cross_entropy", "plain") if loss else "plain"
    if given.get("norms") == "fused" or given.get("lora") or way != "plain":
        from simulator.workload.variants import with_fused_norms, with_lora, with_losses

        network = with_fused_norms(network) if given.get("norms") == "fused" else network
        if given.get("lora"):
            network = with_lora(network, given["lora"], sizes["lora_layers"], sizes["lora_weights"])
        network = with_losses(network, way) if way != "plain" else network
    return network


def _check(name: str, key: str, value: Any) -> None:
    """Raise InputError if *value* is neither a valid size nor a valid choice for the option *key*."""
    if key in _DATA["choices"]:
        allowed = get_args(_named(_DATA["choices"][key]))
        if value not in allowed:
            raise InputError(f"{name}: {key} '{one_line(value, 60)}'; {nearest(str(value), allowed)}")
        return
    least, most = _DATA["limits"].get(key, (1, _MAX_SIZE))
    sizes = value if isinstance(value, tuple) else (value,)
    if key == "image" and len(sizes) not in (1, 2):
        raise InputError(f"{name}: image is a side, or height and width; got {one_line(value, 60)}")
    for size in sizes or (None,):
        if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= most:
            needed = "is 0 (without) or 1 (with)" if most == 1 else f"must be a whole number, {least} to {most}"
            raise InputError(f"{name}: {key} {needed}; got {one_line(','.join(map(str, sizes)), 60)}")
