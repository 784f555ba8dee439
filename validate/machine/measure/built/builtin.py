"""The built-in networks of measured steps: descriptions of the simulator's networks in a file, for any batch.

A line of the file describes a network for one sample, and for more: there a size that grows with the batch is its value
``at`` one sample and what each further sample adds (``more``).  ``tests/written_networks.py`` writes the file from the
simulator's networks.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from validate.machine.measure.built.description import Description, description_of

FILE = Path(__file__).with_name("builtin.jsonl.xz")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a sequence network; 0 stands for the network's default."""

    length: int = 0
    hidden: int = 0
    heads: int = 0
    layers: int = 0
    vocabulary: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """The kind of a network's samples, and the default length of a sequence or side of an image; 0 for others."""

    sample: str
    length: int
    image: int


@cache
def _lines() -> Mapping[tuple[str, Sizes, bool], Mapping[str, Any]]:
    lines = map(json.loads, lzma.decompress(FILE.read_bytes()).decode().splitlines())
    return {(line["model"], Sizes(**line["sizes"]), line["training"]): line for line in lines}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the networks."""
    return tuple(dict.fromkeys(model for model, _, _ in _lines()))


def builtin_facts(model: str) -> Facts:
    """Return what a table says of the network *model*."""
    line = _lines()[model, Sizes(), True]
    return Facts(line["more"]["sample"], line["length"], line["image"])


@lru_cache(maxsize=4)
def builtin_network(model: str, sizes: Sizes, batch: int, *, training: bool) -> Description:
    """Return the network *model* of *sizes* for a *batch*, with its loss in training.

    Raises ValueError where the file does not hold it.
    """
    line = _lines().get((model, sizes, training))
    if line is None:
        raise ValueError(f"{model} of {asdict(sizes)} is not written out")
    return description_of(line["one"] if batch == 1 else _of_batch(line["more"], batch))


def _of_batch(value: Any, batch: int) -> Any:
    if isinstance(value, list):
        return [_of_batch(each, batch) for each in value]
    if not isinstance(value, dict):
        return value
    if "at" in value:
        return value["at"] + value["more"] * (batch - 1)
    return {key: _of_batch(each, batch) for key, each in value.items()}
