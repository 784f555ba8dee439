"""JSON Schemas of topologies and parts, for editors: ``python -m simulator.topology.json_schema [FOLDER]``."""

import json
import sys
from pathlib import Path

from simulator.topology.catalogue import builtin_folder
from simulator.topology.parts import any_part
from simulator.topology.schema import TopologyFile

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schemas() -> dict[str, str]:
    """Return the text of each schema, by file name."""
    schemas = {
        "topology.schema.json": ("A machine or a cluster", TopologyFile.model_json_schema()),
        "part.schema.json": ("A part of the catalogue", any_part().json_schema()),
    }
    return {
        name: json.dumps({"$schema": _DIALECT, **schema, "title": title}, indent=1, sort_keys=True) + "\n"
        for name, (title, schema) in schemas.items()
    }


def write_json_schemas(folder: Path) -> None:
    """Write the schemas into *folder*."""
    for name, text in json_schemas().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_json_schemas(Path(sys.argv[1]) if len(sys.argv) > 1 else builtin_folder())
