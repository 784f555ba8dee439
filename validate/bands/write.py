"""The package's file ``bands.json``, one class per line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.bands.composition import LEVEL
from simulator.bands.evidence import Evidence
from simulator.console.files import OutputFile
from simulator.errors import InputError


def bands_document(evidence: Evidence, tables: Sequence[str]) -> dict[str, Any]:
    """Return *evidence*, made from *tables*, as plain data."""
    classes = [
        {name: value for name, value in asdict(spread).items() if value is not None}
        for spread in evidence.spreads.values()
    ]
    return {
        "schema_version": 1,
        "summary": "log(measured / predicted) by class, for the bands of answers; docs/decisions/bands.md",
        "level": LEVEL,
        "command": " ".join(["validate bands", *tables]),
        "seen": asdict(evidence.seen),
        "classes": classes,
    }


def bands_text(document: dict[str, Any]) -> str:
    """Return *document* in the layout of the file."""
    head = {name: value for name, value in document.items() if name != "classes"}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    entries = ",\n".join(f"    {json.dumps(entry)}" for entry in document["classes"])
    return "\n".join(["{", *lines, '  "classes": [', entries, "  ]", "}"]) + "\n"


def write_bands(text: str) -> str:
    """Write *text* to the package's ``bands.json`` and return the path; raises InputError if it cannot be written."""
    path = files("simulator.bands").joinpath("bands.json")
    if not isinstance(path, Path):
        raise InputError("--write: the classes are no file here; run it in a clone")
    with OutputFile("--write", str(path)) as output:
        output.write(text.encode())
    return str(path)
