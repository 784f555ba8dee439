"""The networks that steps are measured of, written out by the simulator into the file that the measuring code reads.

``python -m tests.written_networks`` writes it anew after a change of the zoo.
"""

from __future__ import annotations

import json
import lzma
from typing import Any

from simulator.workload.described import network_document
from simulator.workload.zoo.registry import build_network, find_entry
from validate.machine.measure.built.description import FILE, Sizes
from validate.machine.measure.cases.step_shapes import CPU_STEPS, JUDGED, NETWORKS

_USED = [
    *((name, sizes) for name, _, sizes in (*NETWORKS, *JUDGED)),
    *((shape.model, shape.sizes) for shape in CPU_STEPS),
]
NAMES = tuple(dict.fromkeys(name for name, _ in _USED))
SIZED = tuple(dict.fromkeys((name, sizes) for name, sizes in _USED if sizes != Sizes()))


def options_of(sizes: Sizes) -> dict[str, int]:
    """Return the zoo's options for *sizes*."""
    found = {name: getattr(sizes, name) for name in Sizes._fields if getattr(sizes, name)}
    return {"sequence_length" if name == "length" else name: size for name, size in found.items()}


def network(name: str, sizes: Sizes, *, batch: int, training: bool) -> dict[str, Any]:
    """Return the description of a network of the zoo, with its loss in training."""
    found = build_network(name, batch=batch, training=training, loss=training, **options_of(sizes))
    return network_document(found)


def lines_of(few: Any, many: Any) -> Any:
    """Return the description *few*, of two samples, with a value at one sample and its growth for what grows.

    *many* describes three samples.
    """
    if isinstance(few, dict):
        return {key: lines_of(value, many[key]) for key, value in few.items()}
    if isinstance(few, list):
        return [lines_of(a, b) for a, b in zip(few, many, strict=True)]
    return few if few == many else {"at": 2 * few - many, "more": many - few}


def written() -> bytes:
    """Return the text of the file: a line for each network."""
    texts = []
    for name, sizes in (*((name, Sizes()) for name in NAMES), *SIZED):
        entry = find_entry(name)
        facts = {"length": entry.defaults.get("sequence_length", 0), "image": entry.defaults.get("image", 0)}
        for training in (True, False):
            one, few, many = (network(name, sizes, batch=n, training=training) for n in (1, 2, 3))
            line = {"model": name, "sizes": sizes._asdict(), "training": training, **facts}
            texts.append(json.dumps({**line, "one": one, "more": lines_of(few, many)}, separators=(",", ":")))
    return ("\n".join(texts) + "\n").encode()


if __name__ == "__main__":
    FILE.write_bytes(lzma.compress(written(), preset=9))
