"""Networks from a Hugging Face ``config.json``: :func:`read_config`.

A file is read as transformers reads it: ``model_type`` selects the family, and the other keys give its sizes.  A
missing key has the default of the family's configuration class.  The keys of each family are in
:mod:`simulator.workload.hugging_face_families`.
"""

from __future__ import annotations

import os
from pathlib import Path

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass
from simulator.topology.json_source import read_json
from simulator.workload.hugging_face_config import Config
from simulator.workload.hugging_face_families import FAMILIES
from simulator.workload.zoo import ZooEntry


@dataclass(frozen=True, slots=True)
class ConfiguredNetwork:
    """The network of a file, and a note on each of its settings that is not simulated."""

    entry: ZooEntry
    notes: tuple[Fault, ...]


def read_config(text: str, *, sequence_length: int | None = None) -> ConfiguredNetwork:
    """Return the network of *text*, a file or a folder with a ``config.json``.

    *sequence_length*: tokens in a sequence; by default the model's own maximum, up to 8,192.

    Raises InputError with every fault of the file and its position: a missing file, invalid JSON, an unknown model
    type, a missing key, a setting that is not modelled.
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
    return ConfiguredNetwork(entry, tuple(config.notes))
