"""Networks from the ``config.json`` of Hugging Face: :func:`read_config`.

A file is read as transformers reads it: ``model_type`` says the family, the other keys its sizes; a key that is not
there has the default of that family's configuration class.  What each family takes is in
:mod:`simulator.workload.hugging_face_families`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.topology.yaml_source import MAX_BYTES, YamlSource, node_tree
from simulator.workload.hugging_face_config import Config
from simulator.workload.hugging_face_families import FAMILIES
from simulator.workload.zoo.entry import Entry

__all__ = ["Model", "is_config", "read_config"]


@dataclass(frozen=True, slots=True)
class Model:
    """What a file says: the network, and remarks on what it says and is not simulated."""

    entry: Entry
    notes: tuple[Fault, ...]


def is_config(text: str) -> bool:
    """Return whether *text* is a JSON file, or a folder that holds a ``config.json`` and no network of the zoo."""
    if text.endswith(".json"):
        return True
    if not text or not os.path.isfile(os.path.join(text, "config.json")):
        return False
    from simulator.workload.zoo.registry import find_entry

    try:
        find_entry(text)
    except InputError:
        return True
    return False


def read_config(text: str, *, sequence_length: int | None = None) -> Model:
    """Return the network of the file, or of the folder, *text*.

    *sequence_length*: tokens of a sequence, where they are said; what depends on it is remarked on.

    Raises InputError with every fault of the file, each with its place: no such file, no JSON, a type of model that is
    not known, a key that is missing or that asks for what is not modelled.
    """
    path = Path(text)
    source = _parsed(path / "config.json" if os.path.isdir(path) else path)
    if not isinstance(source.data, dict):
        raise InputError(source.fault((), "a config.json is a mapping: {...}"))
    kind = source.data.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        key = ("model_type",) if "model_type" in source.data else ()
        said = f"no model_type '{one_line(kind, 40)}' is known" if key else "needs the key 'model_type'"
        raise InputError(source.fault(key, f"{said}; {nearest(str(kind), FAMILIES, listed=20)}"))
    config = Config(source, sequence_length)
    entry = FAMILIES[kind](config)
    config.finish()
    return Model(entry, tuple(config.notes))


def _parsed(path: Path) -> YamlSource:
    name = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(Fault(f"cannot be read: {error.strerror or error}", name)) from None
    if len(raw) > MAX_BYTES:
        raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB; a config.json is a few kB", name, 1, 1))
    twice: list[str] = []

    def mapping(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        keys = [key for key, _ in pairs]
        twice.extend(key for key in found if keys.count(key) > 1)
        return found

    try:
        text = raw.decode("utf-8-sig")
        data = json.loads(text, object_pairs_hook=mapping)
    except UnicodeDecodeError as error:
        raise InputError(Fault("is not UTF-8 text", name, raw.count(b"\n", 0, error.start) + 1, 1)) from None
    except json.JSONDecodeError as error:
        raise InputError(Fault(f"is not valid JSON: {one_line(error.msg)}", name, error.lineno, error.colno)) from None
    except RecursionError:
        raise InputError(Fault("is not valid JSON: nested too deep", name, 1, 1)) from None
    source = YamlSource(name, data, node_tree(text))
    if twice:
        raise InputError([source.fault((key,), f"'{one_line(key, 60)}' is there twice", key=True) for key in twice])
    return source
