"""Write fitted constants into the files that the models read."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.console.files import OutputFile
from simulator.constants import constants_file
from simulator.errors import InputError
from validate.constants.families import Family
from validate.constants.fit import Fitted

__all__ = ["constants_text", "package_of", "write_constants"]

_PACKAGES = ("simulator", "validate")


def package_of(file: str) -> str:
    """Return the package that keeps the file of constants *file*: what clocks show is of ``validate``."""
    return next(p for p in _PACKAGES if files(f"{p}.constants").joinpath(f"{file}.json").is_file())


def write_constants(family: Family, fitted: Fitted) -> list[str]:
    """Write what was *fitted*; return the paths of the files that were changed.

    Raises
    ------
    InputError
        Where a file cannot be written.

    """
    written = []
    for file in dict.fromkeys(name.partition(".")[0] for name in fitted.values):
        path = files(f"{package_of(file)}.constants").joinpath(f"{file}.json")
        if not isinstance(path, Path):
            raise InputError("--write: the constants are not files here; run it in a clone")
        text = constants_text(_changed(file, family, fitted))
        with OutputFile("--write", str(path)) as output:
            output.write(text.encode())
        written.append(str(path))
    return written


def constants_text(document: dict[str, Any]) -> str:
    """Return *document* as the files hold it: a constant a line."""
    head = {key: value for key, value in document.items() if key != "constants"}
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    entries = [
        f"    {json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}"
        for key, entry in document["constants"].items()
    ]
    return "\n".join(["{", *lines, '  "constants": {', ",\n".join(entries), "  }", "}"]) + "\n"


def _changed(file: str, family: Family, fitted: Fitted) -> dict[str, Any]:
    document = constants_file(file, package_of(file))
    for name, value in fitted.values.items():
        owner, _, constant = name.partition(".")
        if owner != file:
            continue
        entry = {key: old for key, old in document["constants"][constant].items() if key not in ("spread", "bound")}
        entry["value"] = value
        if name in fitted.spread:
            entry |= {"from": "fit", "spread": fitted.spread[name]}
        if name in fitted.at_bound:
            entry["bound"] = True
        document["constants"][constant] = entry
    tables = Counter(Path(row.file).name if len(Path(row.file).parts) < 2 else _shown(row.file) for row in fitted.rows)
    said = {
        "command": f"validate fit --only {family.name}",
        "tables": dict(sorted(tables.items())),
        f"{'machines' if family.kind == 'collectives' else 'devices'}": sorted({row.place for row in fitted.rows}),
    }
    constants = document.pop("constants")
    document["fitted"] = {**document.get("fitted", {}), family.name: said}
    document["constants"] = constants
    return document


def _shown(file: str) -> str:
    """Return the last folder and the name of *file*: no path of the machine on which it was read."""
    return "/".join(Path(file).parts[-2:])
