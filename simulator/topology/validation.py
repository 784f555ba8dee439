"""Conversion of pydantic's errors into faults with positions and suggested names."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from simulator.errors import FAULTS_SHOWN, Fault, InputError, nearest, one_line
from simulator.topology.yaml_source import YamlSource, uncollected

_WORDS = {
    **dict.fromkeys(("model_type", "dict_type"), "must be a mapping of keys to values"),
    "tuple_type": "must be a list",
    "string_type": "must be text",
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
}
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
    source: YamlSource, kind: type[Model], lists: tuple[str, ...]
) -> tuple[Model | None, InputError | None]:
    """Return a model of the valid part of *source*, without faulty entries of *lists*, if any, and the error."""
    try:
        return validate(source, kind), None
    except InputError as error:
        told = error
    if not isinstance(source.data, dict):
        return None, told
    data: dict[str, Any] = {}
    for key, field in kind.model_fields.items():
        value = source.data.get(key)
        if key in lists and isinstance(value, dict):
            data[key] = {k: v for k, v in value.items() if _alone(kind, key, {k: v})}
        elif key in lists and isinstance(value, list):
            data[key] = [v for v in value if _alone(kind, key, [v])]
        elif key in source.data and (field.is_required() or _alone(kind, key, value)):
            data[key] = value
    try:
        return kind.model_validate(data), told
    except ValidationError:
        return None, told


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
    words = _WORDS.get(what) or item["msg"].replace("Input should be", "must be")
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
        following: set[type[BaseModel]] = set()
        for model in models:
            field = model.model_fields.get(str(step))
            if field is not None:
                following |= _models_in(field.annotation)
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
