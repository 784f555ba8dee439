"""Lookup of topologies and parts by path or name, and pydantic's errors as faults with positions and hints."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from simulator.errors import FAULTS_SHOWN, Fault, InputError, nearest, one_line
from simulator.records import own_data
from simulator.topology.parts import CpuPart, GpuPart, LinkPart, NicPart, Part, StoragePart, SwitchPart
from simulator.topology.yaml_source import YamlSource, read_yaml, uncollected

Model = TypeVar("Model", bound=BaseModel)


def validate(source: YamlSource, kind: type[Model]) -> Model:
    """Return *source* as a *kind*; raises InputError with all mistakes, in file order."""
    if not isinstance(source.data, dict):
        found = "nothing" if source.data is None else f"a {type(source.data).__name__}"
        raise InputError(source.fault((), f"must be a mapping of keys to values; got {found}"))
    try:
        return kind.model_validate(source.data)
    except ValidationError as error:
        with uncollected():
            items: list[Any] = error.errors(include_url=False)
        if len(items) > FAULTS_SHOWN:
            items.sort(key=lambda item: source.place(item["loc"]))
        unique: dict[tuple[int, int, str], Fault] = {}
        n_worded = 0
        while n_worded < len(items) and len(unique) < FAULTS_SHOWN:
            fault = _fault(source, kind, dict(items[n_worded]))
            unique[fault.line, fault.column, fault.message] = fault
            n_worded += 1
        raise InputError([unique[place] for place in sorted(unique)], len(items) - n_worded) from None


def validate_in_part(
    source: YamlSource, kind: type[Model], lists: tuple[str, ...], instead: Mapping[str, Any] = {}
) -> tuple[Model, InputError | None]:
    """Return the model of *source* less faulty entries of *lists*, *instead* of other faulty keys, and the error.

    Raises that error if no model is left.
    """
    try:
        return validate(source, kind), None
    except InputError as error:
        told = error
    if not isinstance(source.data, dict):
        raise told
    data: dict[str, Any] = {}
    for key, field in kind.model_fields.items():
        value = source.data.get(key)
        if key in lists and isinstance(value, dict):
            data[key] = {k: v for k, v in value.items() if _alone(kind, key, {k: v})}
        elif key in lists and isinstance(value, list):
            data[key] = [v for v in value if _alone(kind, key, [v])]
        elif key in source.data and (_alone(kind, key, value) or (key not in instead and field.is_required())):
            data[key] = value
        elif key in instead:
            data[key] = instead[key]
    try:
        return kind.model_validate(data), told
    except ValidationError:
        raise told from None


def kept_positions(source: YamlSource, kind: type[BaseModel], key: str) -> list[int]:
    """Return the positions of the valid entries of the list *key* of *source*."""
    entries = source.data.get(key) if isinstance(source.data, dict) else None
    return [i for i, v in enumerate(entries) if _alone(kind, key, [v])] if isinstance(entries, list) else []


_adapter = lru_cache(maxsize=16)(TypeAdapter)


def _alone(kind: type[BaseModel], key: str, value: Any) -> bool:
    annotation: Any = kind.model_fields[key].annotation
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _fault(source: YamlSource, kind: type[BaseModel], item: dict[str, Any]) -> Fault:
    path, what, got = item["loc"], item["type"], one_line(repr(item["input"]), 60)
    where = one_line(".".join(str(step) for step in path))
    said = item.get("ctx", {})
    if what == "extra_forbidden":
        return source.fault(path, f"unknown key '{one_line(path[-1], 60)}'; {_key_meant(kind, path)}", key=True)
    if what == "missing" and isinstance(path[-1], int):  # a list of fixed length
        where = where.rpartition(".")[0]
        return source.fault(path[:-1], f"{where}: entry {path[-1] + 1} is missing; got {got}")
    if what == "missing":
        return source.fault(path[:-1], f"the key '{path[-1]}' is missing", key=True)
    if what == "value_error":
        return source.fault(path, f"{where}: {said['error']}")
    if what == "literal_error":
        allowed = [word.strip(" '") for word in said["expected"].replace(" or ", ", ").split(",")]
        hint = nearest(str(item["input"]), allowed)
        return source.fault(path, f"{where}: got '{one_line(item['input'], 60)}'; {hint}")
    if what in ("union_tag_invalid", "union_tag_not_found"):
        kinds, tag = "cpu, gpu, link, nic, storage, switch", one_line(said.get("tag", "none"), 60)
        return source.fault(path, f"{where}: kind must be one of {kinds}; got {tag}")
    words = own_data("simulator.topology", "faults.yaml").get(what) or item["msg"].replace("Input should be", "must be")
    if what in ("too_long", "too_short"):
        words = f"must have {said.get('max_length') or str(said['min_length']) + ' or more'} entries"
    return source.fault(path, f"{where}: {words}; got {got}")


def _key_meant(kind: type[BaseModel], path: tuple[Any, ...]) -> str:
    """Return a hint at the key meant by the last step of *path*; lists begin with needed keys and the kind."""
    if len(path) == 3 and path[0] == "devices" and str(path[2]) in _keys_at(kind, ("parts", "")):
        return "it is a key of parts: give it to one of your own under parts, and name that here"
    keys = _keys_at(kind, path[:-1])
    return nearest(str(path[-1]), keys, first=["kind", *(key for key, is_needed in keys.items() if is_needed)])


def _keys_at(kind: type[BaseModel], path: tuple[Any, ...]) -> dict[str, bool]:
    """Return the keys that the models along *path* allow, and whether each is needed; an unclear step counts not."""
    models: set[type[BaseModel]] = {kind}
    for step in path:
        there = (model.model_fields.get(str(step)) for model in models)
        following = {model for field in there if field is not None for model in _models_in(field.annotation)}
        models = {m for m in models if _tag(m) == step} or following or models
    return {field.alias or name: field.is_required() for model in models for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for inner in get_args(annotation) for model in _models_in(inner)}


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("kind")
    values = get_args(field.annotation) if field is not None else ()
    return values[0] if len(values) == 1 else None


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
    alone = {name: path for name, path in _part_files().items() if path.parent.name in ("gpu", "cpu")}  # a machine each
    described |= {name: f"1 x {file_description(path)}" for name, path in alone.items()}
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


@lru_cache(maxsize=8)
def part_names(kind: str | None = None) -> tuple[str, ...]:
    """Return the names of the catalogue's parts, of all kinds or one: gpu, cpu, link, switch, nic, storage."""
    return tuple(name for name, path in _part_files().items() if kind is None or path.parent.name == kind)


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
