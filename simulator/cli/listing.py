"""What ``--list-topologies``, ``--list-strategies``, ``--list-parts`` and ``--list-networks`` print."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from simulator.console.style import Style, choose_style, printable
from simulator.results.columns import lay_out
from simulator.topology.catalogue import builtin_folder, builtin_topologies, description_of, load_part

__all__ = ["print_lists"]


def print_lists(*, topologies: bool, strategies: bool, parts: bool, networks: bool, json_wanted: bool) -> None:
    """Print the lists asked for, as text or as one JSON document."""
    lists: dict[str, list[dict[str, Any]]] = {}
    if topologies:
        lists["topologies"] = [{"name": n, "description": description_of(p)} for n, p in builtin_topologies().items()]
    if strategies:
        lists["strategies"] = _strategies()
    if parts:
        lists["parts"] = [
            {
                "name": path.stem,
                "kind": path.parent.name,
                "description": description_of(path),
                **({"figures": _figures(path.stem)} if json_wanted else {}),
            }
            for path in sorted(builtin_folder().glob("parts/*/*.yaml"))
        ]
    if networks:
        lists["networks"] = _networks()
    if json_wanted:
        sys.stdout.write(json.dumps({"schema_version": 1, **lists}, indent=2) + "\n")
        return
    style = choose_style(sys.stdout)
    blocks = ["\n".join(_text(entries, style)) for entries in lists.values()]
    sys.stdout.write(printable("\n\n".join(blocks) + "\n", sys.stdout))


def _strategies() -> list[dict[str, str]]:
    from simulator.collectives.registry import find_strategy, strategy_names

    return [{"name": name, "description": find_strategy(name).summary} for name in strategy_names(named_only=True)]


def _networks() -> list[dict[str, Any]]:
    from simulator.workload.zoo.registry import find_entry, network_names
    from simulator.workload.zoo.words import described

    return [
        {"name": name, "sample": entry.sample, "description": described(name), "sizes": dict(entry.defaults)}
        for name, entry in ((name, find_entry(name)) for name in network_names())
    ]


def _figures(name: str) -> dict[str, Any]:
    """Return what the part *name* says of itself, in SI."""
    part = load_part(name)
    assert part is not None
    words = {"description", "aliases", "source", "sources", "kind"}
    return part.model_dump(mode="json", exclude_defaults=True, exclude=words)


def _cell(value: Any) -> str:
    """Return *value* in one line; sizes as ``--set`` takes them, without those that are 0: by default."""
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_cell(size)}" for key, size in value.items() if size)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _text(entries: list[dict[str, Any]], style: Style) -> list[str]:
    rows = [[_cell(value) for value in entry.values()] for entry in entries]
    lines = lay_out(rows, [False] * len(rows[0]))
    if style.width is None or max(map(len, lines)) <= style.width:
        return lines
    width = style.width
    stacked: list[str] = []
    for row in rows:
        stacked.append("  ".join(row[:-1]))
        stacked += textwrap.wrap(row[-1], width, initial_indent="  ", subsequent_indent="  ")
    return stacked
