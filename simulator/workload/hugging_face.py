"""Networks from the ``config.json`` of Hugging Face: :func:`read_config`.

A file is read as transformers reads it: ``model_type`` says the family, the other keys its sizes; a key that is not
there has the default of that family's configuration class.  What each family takes is in
:mod:`simulator.workload.hugging_face_families`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.topology.json_source import read_json
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
    source = read_json(path / "config.json" if os.path.isdir(path) else path, "config.json")
    kind = source.data.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        key = ("model_type",) if "model_type" in source.data else ()
        said = f"no model_type '{one_line(kind, 40)}' is known" if key else "needs the key 'model_type'"
        raise InputError(source.fault(key, f"{said}; {nearest(str(kind), FAMILIES, listed=20)}"))
    config = Config(source, sequence_length)
    entry = FAMILIES[kind](config)
    config.finish()
    return Model(entry, tuple(config.notes))
