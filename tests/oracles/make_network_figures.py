"""Write ``network_figures.json``: torch's own counts for the networks of the zoo.

Run ``python -m tests.oracles.make_network_figures`` in the root of the repository, with torch, torchvision and
transformers installed; it takes some minutes.
"""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import asdict
from pathlib import Path

from tests.oracles.torch_networks import BATCH, NAMES, measure, options

FILE = Path(__file__).with_name("network_figures.json")


def main() -> None:
    versions = {}
    for package in ("torch", "torchvision", "transformers"):
        versions[package] = importlib.metadata.version(package).partition("+")[0]
    networks = {name: {"options": dict(options(name)), **asdict(measure(name))} for name in NAMES}
    lines = ",\n".join(f'  "{name}": {json.dumps(row)}' for name, row in networks.items())
    head = f'{{"made_with": {json.dumps(versions)}, "batch": {BATCH}, "networks": {{\n'
    FILE.write_text(f"{head}{lines}\n}}}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
