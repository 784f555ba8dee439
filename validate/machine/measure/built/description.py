"""A network description as stored in its file, and the built-in networks of measured steps, described for any batch.

``simulator/workload/described.py`` specifies the format.  A line of the file of built-in networks describes one for one
sample, and for more: there a size that grows with the batch is its value ``at`` one sample and what each further sample
adds (``more``).  ``tests/written_networks.py`` writes the file from the simulator's networks.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_VERSION = 1


@dataclass(frozen=True, slots=True)
class DescribedParameter:
    """A weight or a bias; layers that name the same parameter share it."""

    name: str
    elements: int
    trained: bool


@dataclass(frozen=True, slots=True)
class DescribedLayer:
    """An operator with its sizes, the numbers of its input tensors and the number of its output tensor."""

    name: str
    operator: str
    sizes: Mapping[str, Any]
    inputs: tuple[int, ...]
    output: int
    parameters: tuple[DescribedParameter, ...] = ()
    in_place: bool = False

    def size(self, name: str, default: int = 0) -> int:
        """Return the size *name*; *default* where the file omits it."""
        return int(self.sizes.get(name, default))


@dataclass(frozen=True, slots=True)
class Description:
    """A network for a batch of ``samples``; ``fed`` are the tensors that no layer writes, the inputs."""

    name: str
    layers: tuple[DescribedLayer, ...]
    elements: tuple[int, ...]
    samples: int
    sample: str = "images"
    fed: tuple[int, ...] = field(default=())

    @property
    def parameter_count(self) -> int:
        """Return the number of elements of all parameters, counting shared ones once."""
        return sum({p.name: p.elements for layer in self.layers for p in layer.parameters}.values())


@dataclass(frozen=True, slots=True)
class DescriptionFile:
    """The location of a description: file ``name``, relative to the measurements ``folder``."""

    folder: str
    name: str

    def read(self) -> Description:
        """Return the network; raises as :func:`read_description`."""
        return read_description(str(Path(self.folder) / self.name))


@lru_cache(maxsize=4)
def read_description(path: str) -> Description:
    """Return the network in the file *path*; raises ValueError where it is invalid, OSError where it is unreadable."""
    try:
        return description_of(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is no network that is written out ({type(error).__name__}: {error})") from None


def description_of(found: Mapping[str, Any]) -> Description:
    """Return the network in the document *found*; raises ValueError, KeyError, TypeError or AttributeError."""
    if found["schema_version"] != _VERSION:
        raise ValueError(f"schema_version must be {_VERSION}")
    layers = tuple(_layer(raw) for raw in found["layers"])
    elements = tuple(int(n) for n in found["elements"])
    written = {layer.output for layer in layers}
    read = {number for layer in layers for number in layer.inputs}
    fed = tuple(sorted(read - written))
    return Description(str(found["network"]), layers, elements, int(found["samples"]), str(found["sample"]), fed)


def _layer(raw: Mapping[str, Any]) -> DescribedLayer:
    return DescribedLayer(
        str(raw["name"]),
        str(raw["operator"]),
        dict(raw["sizes"]),
        tuple(int(n) for n in raw["inputs"]),
        int(raw["output"]),
        tuple(DescribedParameter(str(name), int(n), bool(trained)) for name, n, trained in raw.get("parameters", ())),
        bool(raw.get("in_place")),
    )


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
