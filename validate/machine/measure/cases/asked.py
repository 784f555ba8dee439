"""The user's own steps, with the options of ``simulate``.

``validate run --workload`` writes them into the folder, so that measuring needs only torch: ``asked.json`` says how
each step is run and names the file that describes its network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args, get_origin, get_type_hints

from validate.machine.measure.bench import Bench
from validate.machine.measure.built.description import DescriptionFile
from validate.machine.measure.case import ASKED, Case, Unavailable
from validate.machine.measure.cases.operators import single_operators
from validate.machine.measure.cases.step_shapes import MeasuredStep
from validate.machine.measure.cases.steps import on_one_device, parallel_cases
from validate.machine.measure.launched import nodes_of

_VERSION = 1
_SOURCE = re.compile(r"(torch:[\w.]+:[\w.]+(:[\w,]+)?( \w+=\d+)*)?", re.ASCII)
_NOT_ASKED = ("sizes", "n_nodes")  # sizes are the network's own; the launcher determines the nodes
_MAY_BE_ZERO = ("threads", "bucket", "shards")
_KINDS = {name: kind for name, kind in get_type_hints(MeasuredStep).items() if name not in _NOT_ASKED}


def cases(bench: Bench) -> Iterator[Case]:
    """Yield the steps in the folder's ``asked.json``; raises Unavailable where it is missing or invalid."""
    try:
        shapes = read_asked(bench.scratch)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{ASKED}: {error}") from None
    for shape in shapes:
        if shape.parts:
            yield from single_operators(shape, bench)
    shapes = [shape for shape in shapes if not shape.parts]
    yield from on_one_device((shape for shape in shapes if shape.n_gpus == 1), bench)
    for count in sorted({shape.n_gpus for shape in shapes} - {1}):
        of_count = [replace(shape, n_nodes=nodes_of(count)) for shape in shapes if shape.n_gpus == count]
        yield from parallel_cases(of_count, bench)


def read_asked(folder: Path) -> list[MeasuredStep]:
    """Return the steps requested in *folder*; raises OSError or ValueError."""
    found = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    if not isinstance(found, dict) or found.get("schema_version") != _VERSION or type(found.get("steps")) is not list:
        raise ValueError("is not a list of steps")
    return [_shape(raw, str(folder)) for raw in found["steps"]]


def write_asked(folder: Path, shapes: Sequence[MeasuredStep]) -> None:
    """Add *shapes*, whose networks are described in *folder*, to the steps requested there; raises OSError."""
    path = folder / ASKED
    before = read_asked(folder) if path.is_file() else []
    every = list(dict.fromkeys((*before, *shapes)))
    document = {"schema_version": _VERSION, "steps": [_plain(shape) for shape in every]}
    new = path.with_name(f"{ASKED}.new")
    new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _plain(shape: MeasuredStep) -> dict[str, Any]:
    assert shape.network is not None
    found = {name: value for name, value in asdict(replace(shape, network=None)).items() if name not in _NOT_ASKED}
    return found | {"network": shape.network.name}


def _shape(raw: Any, folder: str) -> MeasuredStep:
    if not isinstance(raw, dict) or not isinstance(raw.get("network"), str) or not isinstance(raw.get("model"), str):
        raise ValueError("a step names its model and its network")
    name = PurePosixPath(raw["network"])
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{name} is not in this folder")
    if set(raw) - set(_KINDS):
        raise ValueError(f"a step has no '{min(set(raw) - set(_KINDS))}'")
    if not _SOURCE.fullmatch(source := raw.get("source", "")):
        raise ValueError(f"source '{source}' is no factory")
    for key, value in raw.items():
        choices = get_args(_KINDS[key]) if get_origin(_KINDS[key]) is Literal else ()
        if choices and value not in choices:
            raise ValueError(f"{key} '{value}'; {', '.join(filter(None, choices))}")
        if _KINDS[key] is int and (type(value) is not int or value < (key not in _MAY_BE_ZERO)):
            raise ValueError(f"{key} must be a whole number")
        if _KINDS[key] is bool and type(value) is not bool:
            raise ValueError(f"{key} must be true or false")
    count, shards = raw.get("n_gpus", 1), raw.get("shards", 0)
    if shards and (shards > count or count % shards):
        raise ValueError(f"{shards} ranks with a whole of the parameters, among {count}")
    return MeasuredStep(**{**raw, "network": DescriptionFile(folder, str(name))})
