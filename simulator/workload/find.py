"""Find the network that ``--workload`` names: of the zoo, YAML, a torch module, a ``config.json``, or plain data."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec

from simulator.errors import Fault, InputError, mention, refused, word_of
from simulator.records import dataclass, replace
from simulator.workload.network import Network
from simulator.workload.zoo import FUSED, ZooEntry

SUFFIX = ".network.json"
"""Of files with a network as plain data."""


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """The network that ``--workload`` names; ``build`` returns it for a batch size, and caches it.

    ``variants`` are alternatives that compute the same: the option for each, and the size that it sets, as (name,
    value).  ``savings`` are others, which only take less memory.
    ``in_half``: train in half precision by default, with attention of kind ``attention``.
    ``notes``: one line for each property of the file that is not simulated.
    """

    text: str
    build: Callable[[int], Network]
    variants: tuple[tuple[str, tuple[str, str]], ...] = ()
    savings: tuple[tuple[str, tuple[str, str]], ...] = ()
    in_half: bool = False
    attention: str = ""
    notes: tuple[str, ...] = ()


def find_network(
    text: str,
    *,
    training: bool = True,
    sequence_length: int | None = None,
    image: int | None = None,
    settings: Mapping[str, int | str] | None = None,
    words_multiple: int = 1,
) -> NetworkSource:
    """Return the network that *text* names.

    *training*: include the loss and the layers that exist only in training (dropout).
    *settings*: sizes that replace those of a zoo network: ``layers``, ``attention``, ...; ``loss`` 0 omits the final
        cross-entropy.
    *words_multiple*: the vocabulary of a zoo network or a ``config.json`` is padded to a multiple of this.

    Raises InputError if an option does not apply to *text*, or for the faults of a ``config.json``; ``build`` raises it
    for unknown names (with the nearest one), faults of other files, and sizes that do not fit.
    """
    scheme, colon, _ = text.partition(":")
    if colon and scheme in ("bytes", "sweep"):
        raise refused("workload", f"a size is exchanged, not computed; {mention('batch')} needs a network", text)
    is_file = text.endswith((".yaml", ".yml"))
    if settings and (colon or is_file):
        raise refused("sizes", f"is for networks of the zoo; {text} says its own sizes", next(iter(settings)) + "=...")
    if is_file and (sequence_length or image):
        option = mention("seq_len" if sequence_length else "image")
        raise InputError(f"{option}: is for networks of the zoo and torch modules; {text} says its own sizes")
    if colon and scheme == "torch":
        from simulator.workload.torch_import.child import trace_apart

        given = {"training": training, "sequence_length": sequence_length, "image": image}
        return NetworkSource(text, cache(lambda batch: trace_apart(text, batch=batch, **given)))
    if is_file:
        from simulator.workload.layers_yaml import load_network

        return NetworkSource(text, cache(lambda n: load_network(text, batch=n, training=training, loss=training)))
    if is_described(text):
        from simulator.workload.described import read_described

        for option, value in {"seq_len": sequence_length, "image": image, "sizes": settings}.items():
            if value:
                raise InputError(f"{mention(option)}: {text} is a network that is written out, with its sizes")
        return NetworkSource(text, cache(lambda batch: read_described(text, batch=batch, training=training)))
    from simulator.workload.zoo.registry import build_entry, find_entry

    found = _configured(text, training, sequence_length, settings)
    if isinstance(found, NetworkSource):
        return found
    configured, notes = found

    def entry_of() -> ZooEntry:
        return configured if configured is not None else find_entry(text)

    def build(batch: int) -> Network:
        try:
            entry = entry_of()
        except InputError as error:
            folder = "is a folder without config.json; name a network, its file, or a folder with it"
            why = folder if text and os.path.isdir(text) else f"{error} (simulate networks)"
            raise refused("workload", why, text if why is folder else "") from None
        sizes = {"sequence_length": sequence_length, "image": image, **(settings or {})}
        loss = bool(sizes.pop("loss", training))
        words = sizes.get("vocabulary") or entry.defaults.get("vocabulary")
        if isinstance(words, int) and words_multiple > 1:
            sizes["vocabulary"] = -(-words // words_multiple) * words_multiple
        try:
            return build_entry(text, entry, batch=batch, training=training, loss=loss, **sizes)
        except InputError as error:
            told = mention("workload")
            raise error.changed(lambda fault: replace(fault, message=f"{told}: {fault.message}")) from None

    source = NetworkSource(text, cache(build), notes=tuple(note.unspelt for note in notes))
    with suppress(InputError):
        entry = entry_of()
        own = entry.defaults.get("attention", FUSED[0])
        chosen = {**entry.defaults, **(settings or {})}
        faster = [("attention", FUSED[0])] if chosen.get("attention", own) not in FUSED else []
        faster += [("gelu", "fused")] if chosen.get("gelu") == "eager" else []
        smaller = [("cross_entropy", "fused-linear")] if chosen.get("cross_entropy") == "plain" else []
        variants, savings = (
            tuple((f"{word_of('sizes')} {name}={value}", (name, value)) for name, value in each)
            for each in (faster, smaller)
        )
        attention = own if own in FUSED else FUSED[0]
        source = replace(source, variants=variants, savings=savings, in_half=entry.in_half, attention=attention)
    return source


def _configured(
    text: str, training: bool, length: int | None, settings: Mapping[str, int | str] | None
) -> NetworkSource | tuple[ZooEntry | None, tuple[Fault, ...]]:
    """Return the network of the ``config.json`` *text*, and notes on it; as transformers builds it, if only that does.

    None: *text* is no such file.  Raises InputError if transformers is needed and not installed.
    """
    if not is_config(text):
        return None, ()
    from simulator.workload.hugging_face import OtherNetworkError, read_config

    try:
        return read_config(text, sequence_length=length)
    except OtherNetworkError as other:
        if find_spec("transformers") is None or find_spec("torch") is None:
            hint = "; or pip install torch transformers, which build it"
            raise other.changed(lambda fault: replace(fault, message=fault.message + hint)) from None
        if settings:
            told = f"is for networks of the zoo; transformers builds {text}, with its own sizes and layers"
            raise refused("sizes", told, next(iter(settings)) + "=...") from None
        first, *further = (fault.unspelt for fault in other.faults)
    from simulator.workload.torch_import.child import trace_apart

    build = cache(lambda batch: trace_apart(text, batch=batch, training=training, sequence_length=length))
    told = f"{first.partition(';')[0]} here; simulated as transformers runs it, operator by operator"
    return NetworkSource(text, build, in_half=True, notes=(told, *further))


def is_described(text: str) -> bool:
    """Return whether *text*, a value of ``--workload``, names a file with a network as plain data."""
    return text.endswith(SUFFIX)


def is_config(text: str) -> bool:
    """Return whether *text* is a JSON file, or a folder with a ``config.json`` that is not also a zoo name."""
    if text.endswith(".json"):
        return True
    if not text or not os.path.isfile(os.path.join(text, "config.json")):
        return False
    from simulator.workload.zoo.registry import entry_of

    return entry_of(text) is None
