"""A network description as stored in its file; ``simulator/workload/described.py`` specifies the format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
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
