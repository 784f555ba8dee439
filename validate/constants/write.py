"""Write fitted constants to the files that the models read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from simulator.console.files import OutputFile
from simulator.constants import constants_file, constants_path
from simulator.errors import InputError
from validate.constants.family import Family
from validate.constants.fit import Fitted


def write_constants(family: Family, fitted: Fitted) -> list[str]:
    """Write the *fitted* constants and return the paths of the changed files.

    Raises InputError if a file cannot be written.
    """
    written = []
    for file in dict.fromkeys(name.partition(".")[0] for name in fitted.values):
        path = constants_path(file)
        if not isinstance(path, Path):
            raise InputError("--write: the constants are not files here; run it in a clone")
        text = constants_text(_changed(file, family, fitted))
        with OutputFile("--write", str(path)) as output:
            output.write(text.encode())
        written.append(str(path))
    return written


def constants_text(document: dict[str, Any]) -> str:
    """Return *document* in the layout of the files: one constant per line."""
    head = {key: value for key, value in document.items() if key != "constants"}
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    entries = [
        f"    {json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}"
        for key, entry in document["constants"].items()
    ]
    return "\n".join(["{", *lines, '  "constants": {', ",\n".join(entries), "  }", "}"]) + "\n"


def _changed(file: str, family: Family, fitted: Fitted) -> dict[str, Any]:
    document = constants_file(file)
    for name, value in fitted.values.items():
        owner, _, constant = name.partition(".")
        if owner != file:
            continue
        entry = {key: old for key, old in document["constants"][constant].items() if key not in ("spread", "bound")}
        entry["value"] = value
        if name in fitted.spread:
            known = str(entry["from"])
            entry |= {"from": known if known.startswith("fit") else "fit", "spread": fitted.spread[name]}
        if name in fitted.at_bound:
            entry["bound"] = True
        document["constants"][constant] = entry
    # Only the last folder and the name, as paths differ between machines.
    tables = Counter("/".join(Path(row.file).parts[-2:]) for row in fitted.rows)
    said = {
        "command": f"validate fit --only {family.name}",
        "rows": dict(sorted(tables.items())),
        f"{'machines' if family.kind == 'collectives' else 'devices'}": sorted({row.place for row in fitted.rows}),
    }
    by_family = {**document.get("fitted", {}), family.name: said}
    return {**document, "fitted": by_family, "constants": document["constants"]}
