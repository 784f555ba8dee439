"""Lookup of topologies and parts: paths first, then built-in names."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.topology.parts import CpuPart, GpuPart, LinkPart, NicPart, Part, StoragePart, SwitchPart
from simulator.topology.validation import validate
from simulator.topology.yaml_source import read_yaml

_DESCRIPTION = re.compile(r"^description:[ ]*(.+?)[ ]*$", re.MULTILINE)
_SUFFIXES = (".yaml", ".yml")
_CLASSES: tuple[type[Part], ...] = (GpuPart, CpuPart, SwitchPart, NicPart, StoragePart, LinkPart)
_MODELS = {part.__name__.removesuffix("Part").lower(): part for part in _CLASSES}
PART_KINDS = tuple(_MODELS)


@lru_cache(maxsize=1)
def builtin_folder() -> Path:
    """Return the folder of the built-in topologies."""
    import topologies

    return Path(next(iter(topologies.__path__)))


@lru_cache(maxsize=1)
def builtin_topologies() -> dict[str, Path]:
    """Return the paths of the built-in topologies by name, sorted."""
    return {path.stem: path for path in sorted(builtin_folder().glob("*.yaml"))}


def find_topology(name: str, beside: Path | None = None) -> tuple[Path, str]:
    """Return the file for *name* (beside *beside*, here, or built in), and its name for messages."""
    candidates = [beside / name] if beside is not None else []
    for path in [*candidates, Path(name)]:
        if os.path.exists(path) and not os.path.isdir(path):  # which also take what is no name of a file
            return path, str(path)
    stem = name
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    found = builtin_topologies().get(stem)
    if found is not None:
        return found, found.name
    beside_it = [f"{stem}{suffix}" for suffix in _SUFFIXES if name and os.path.isfile(f"{stem}{suffix}")]
    if beside_it:
        raise InputError(Fault(f"no such file; did you mean '{one_line(beside_it[0])}'?", one_line(name)))
    if name and os.path.isdir(name):
        raise InputError(Fault("is a folder; a YAML file or a built-in name is needed", name))
    if stem in _part_files():
        raise InputError(Fault(f"is a part, not a machine; {_machines_with(stem)}", one_line(name)))
    described = {name: file_description(path) for name, path in builtin_topologies().items()}
    for name_alone, path in _part_files().items():
        if path.parent.name in ("gpu", "cpu"):  # each can be named as a machine
            described[name_alone] = f"1 x {file_description(path)}"
    hint = nearest(stem, described, listed=0, words=described)
    if not hint.startswith("did"):
        hint = nearest(stem, builtin_topologies(), listed=6)
    raise InputError(Fault(f"no such file and no built-in topology; {hint} (simulate machines)", one_line(name)))


def file_description(path: Path) -> str:
    """Return the description in the file at *path*, without parsing the whole file, since there are many."""
    match = _DESCRIPTION.search(path.read_text(encoding="utf-8"))
    return match[1].strip("\"'") if match else ""


def _machines_with(part: str) -> str:
    names = re.compile(rf"\bpart: *{re.escape(part)}(?![\w.-])")
    found = [name for name, path in builtin_topologies().items() if names.search(path.read_text(encoding="utf-8"))]
    if not found:
        return "no built-in machine has it: describe one (docs/topology.md)"
    more = ", ..." if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{more} {'have' if len(found) > 1 else 'has'} it"


@lru_cache(maxsize=1)
def _part_files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(builtin_folder().glob("parts/*/*.yaml"))}


def part_names(kind: str | None = None) -> list[str]:
    """Return the names of the catalogue's parts, of all kinds or one: gpu, cpu, link, switch, nic, storage."""
    return [name for name, path in _part_files().items() if kind is None or path.parent.name == kind]


@lru_cache(maxsize=8)
def gpus_with(precision: str) -> tuple[str, ...]:
    """Return the names of the catalogue's GPUs whose part has a peak rate in *precision*, read without parsing."""
    peak = re.compile(rf"^peak:.*\b{re.escape(precision)}:", re.MULTILINE)
    files = {name: path for name, path in _part_files().items() if path.parent.name == "gpu"}
    return tuple(name for name, path in files.items() if peak.search(path.read_text(encoding="utf-8")))


@lru_cache(maxsize=256)
def load_part(name: str) -> Part | None:
    """Return the catalogue's part called *name*, or None.  Raises InputError if its file is faulty."""
    path = _part_files().get(name)
    if path is None:
        return None
    return validate(read_yaml(path, f"parts/{path.parent.name}/{path.name}"), _MODELS[path.parent.name])


def part_figures(name: str) -> list[tuple[str, str, str]]:
    """Return (figure, value as written, source, if any) of each figure of the part *name*, if there is one."""
    path = _part_files().get(name)
    written = {} if path is None else read_yaml(path).data
    said, usual = written.get("sources", {}), written.get("source", "")
    found = []
    for key, value in written.items():
        if key in ("kind", "description", "aliases", "source", "sources"):
            continue
        each = {f"{key}.{sub}": figure for sub, figure in value.items()} if isinstance(value, dict) else {key: value}
        for label, figure in each.items():
            text = ", ".join(map(str, figure)) if isinstance(figure, list) else str(figure)
            found.append((label, text, " ".join(str(said.get(label, said.get(key, usual))).split())))
    return found
