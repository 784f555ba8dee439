""":func:`dataclass`, as the standard library's, with methods made when first looked up, to start fast.

What belongs together by key is found by :func:`sums_by_key` and :func:`lists_by_key`;
tables of facts that come with the packages, as YAML or JSON, by :func:`own_data`.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from functools import cache, partial
from importlib.resources import files
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace

K = TypeVar("K")
V = TypeVar("V")

named_tuple = tuple.__new__
"""Makes a named tuple, ``named_tuple(cls, fields)``, of all its fields in half the time of a call of *cls*."""

_SAYS = "__dataclass_params__"
_FIELD, _CLASS_VARIABLE = (getattr(dataclasses, name) for name in ("_FIELD", "_FIELD_CLASSVAR"))


def _dataclass(
    cls: type[Any] | None = None, /, *, init: bool = True, eq: bool = True, frozen: bool = False, **other: bool
) -> Any:
    """Return *cls* as a dataclass; what is seldom asked, the standard library makes or refuses."""
    if cls is None:
        return partial(_dataclass, init=init, eq=eq, frozen=frozen, **other)
    of_bases = [vars(base)[_SAYS] for base in cls.__mro__[1:] if _SAYS in vars(base)]
    own = set(vars(cls))
    if "__eq__" in own and vars(cls).get("__hash__") is None:
        own.discard("__hash__")  # Python says so of a class with an __eq__ of its own
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise the signature, which compiles a method
    seldom = other.get("order") or other.get("unsafe_hash") or (frozen and own & {"__setattr__", "__delattr__"})
    if seldom or any(each.frozen != frozen for each in of_bases):
        return dataclasses.dataclass(cls, init=init, eq=eq, frozen=frozen, **other)
    shown = other.pop("repr", True)
    later = {"__init__": init, "__repr__": shown, "__eq__": eq, "__hash__": eq and frozen}
    made = _with_fields(cls, of_bases, **other)
    _check_fields(made, init=init)
    for name, said in {"init": init, "repr": shown, "eq": eq, "frozen": frozen}.items():
        setattr(made.__dataclass_params__, name, said)
    methods: dict[str, Any] = {name: _Later(made, name) for name, wanted in later.items() if wanted}
    if eq and not frozen:
        methods["__hash__"] = None
    if frozen:
        methods |= _refusals(made)
    if frozen and other.get("slots"):
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _with_fields(cls: type[Any], of_bases: Sequence[Any], **other: bool) -> Any:
    """Return *cls* with its fields read, without the methods compiled if it is as frozen as its bases (*of_bases*)."""
    frozen_bases = [each for each in of_bases if each.frozen]
    for each in frozen_bases:
        each.frozen = False
    try:
        return dataclasses.dataclass(cls, init=False, repr=False, eq=False, **other)
    finally:
        for each in frozen_bases:
            each.frozen = True


def _check_fields(cls: Any, *, init: bool) -> None:
    seen_default = False
    for each in cls.__dataclass_fields__.values():
        if each._field_type is not _FIELD:
            if each._field_type is not _CLASS_VARIABLE:
                raise TypeError(f"field {each.name!r} is an InitVar; those need the standard library's dataclass")
        elif init and each.init and not each.kw_only:
            if each.default is not MISSING or each.default_factory is not MISSING:
                seen_default = True
            elif seen_default:
                raise TypeError(f"non-default argument {each.name!r} follows default argument")


def _refusals(cls: Any) -> dict[str, Any]:
    def refuse(one: Any, name: str, what: str) -> None:
        if type(one) is cls or any(name == each.name for each in fields(cls)):
            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def set_attribute(self: Any, name: str, value: object) -> None:
        refuse(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        refuse(self, name, "delete")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


@cache
def _replaceable(cls: Any) -> tuple[str, ...] | None:
    """Return the names with which an object of *cls* is made; None if some of its fields cannot be given."""
    return tuple(each.name for each in fields(cls)) if all(each.init for each in fields(cls)) else None


def _replace(one: Any, /, **changes: Any) -> Any:
    made_by: Any = type(one)
    names = _replaceable(made_by) if hasattr(made_by, "__dataclass_fields__") else None
    if names is None:
        return dataclasses.replace(one, **changes)
    for name in names:
        if name not in changes:
            changes[name] = getattr(one, name)
    return made_by(**changes)


if not TYPE_CHECKING:
    dataclass, replace = _dataclass, _replace


class _Later:
    """A method of a class until it is first looked up, which puts the compiled one in its place."""

    def __init__(self, cls: type[Any], name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        cls, name = self._cls, self._name
        compiled = _MAKERS[name](cls)
        compiled.__qualname__, compiled.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
        setattr(cls, name, compiled)
        return compiled.__get__(instance, owner)


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


@cache
def _code(source: str) -> CodeType:
    return next(each for each in compile(source, "<records>", "exec").co_consts if isinstance(each, CodeType))


def _function(source: str, names: Sequence[str], **known: object) -> FunctionType:
    """Return the function in *source* with *names* for ``_0``, ``_1``, knowing what is *known*; code is shared."""
    code = _code(source)
    called = {f"_{place}": name for place, name in enumerate(names)}
    named = code.replace(
        co_varnames=tuple(called.get(each, each) for each in code.co_varnames),
        co_names=tuple(called.get(each, each) for each in code.co_names),
        co_consts=tuple(called.get(each, each) if isinstance(each, str) else each for each in code.co_consts),
    )
    return FunctionType(named, known)


def _init(cls: Any) -> FunctionType:
    parameters, body, names = ["self"], [], []
    defaults: list[object] = []
    later: dict[str, object] = {}
    known: dict[str, object] = {"_set": object.__setattr__, "_factory": _FACTORY}
    frozen = cls.__dataclass_params__.frozen
    for place, each in enumerate(sorted(fields(cls), key=lambda each: bool(each.kw_only))):
        made, value = each.default_factory is not MISSING, f"_{place}"
        given = made or each.default is not MISSING
        known[f"_default_{place}"] = each.default_factory if made else each.default
        names.append(each.name)
        if each.init:
            if each.kw_only and "*" not in parameters:
                parameters.append("*")
            parameters.append(f"_{place}")
            default = _FACTORY if made else each.default
            if given and each.kw_only:
                later[each.name] = default
            elif given:
                defaults.append(default)
            value = f"_default_{place}() if _{place} is _factory else _{place}" if made else value
        elif given:
            value = f"_default_{place}()" if made else f"_default_{place}"
        else:
            continue
        slot = getattr(cls, each.name, None)
        if frozen and isinstance(slot, MemberDescriptorType):  # sets in two thirds of the time
            known[f"_set_{place}"] = slot.__set__
            body.append(f"_set_{place}(self, {value})")
        else:
            body.append(f"_set(self, '_{place}', {value})" if frozen else f"self._{place} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body or ["pass"])
    made_of = _function(source, names, **known)
    made_of.__defaults__, made_of.__kwdefaults__ = tuple(defaults) or None, later or None
    made_of.__annotations__ = {**{each.name: each.type for each in fields(cls) if each.init}, "return": None}
    return made_of


def _repr(cls: Any) -> Any:
    shown = ", ".join(f"{each.name}={{self.{each.name}!r}}" for each in fields(cls) if each.repr)
    source = f"def __repr__(self): return f'{{self.__class__.__qualname__}}({shown})'"
    return recursive_repr()(_function(source, ()))


def _eq(cls: Any) -> FunctionType:
    names = [each.name for each in fields(cls) if each.compare]
    same = f"{_values('self', names)} == {_values('other', names)}"
    source = f"def __eq__(self, other): return {same} if self.__class__ is other.__class__ else NotImplemented"
    return _function(source, names)


def _hash(cls: Any) -> FunctionType:
    names = [each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)]
    return _function(f"def __hash__(self): return hash({_values('self', names)})", names)


def _values(of: str, names: Sequence[str]) -> str:
    return f"({''.join(f'{of}._{place}, ' for place, _ in enumerate(names))})"


_MAKERS: dict[str, Callable[[Any], Any]] = {"__init__": _init, "__repr__": _repr, "__eq__": _eq, "__hash__": _hash}


def sums_by_key(pairs: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """Return the sum of the numbers of each key in *pairs*, keys in the order in which they come."""
    found: dict[K, Any] = {}
    for key, number in pairs:
        found[key] = found.get(key, 0) + number
    return found


def lists_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key in *pairs*, keys and values in the order in which they come."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def inner(of: object, key: str) -> Mapping[str, Any]:
    """Return the mapping at *key* of the document *of*; empty where there is none."""
    found = of.get(key) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


@cache
def own_data(package: str, name: str) -> Any:
    """Return what *name*, a file in *package*, holds: one object for all, which nobody changes."""
    raw = files(package).joinpath(name).read_bytes()
    if name.endswith(".json"):
        return json.loads(raw)
    import yaml  # the zoo needs the standard library alone

    return yaml.load(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def own_patterns(package: str, name: str, topic: str) -> dict[str, re.Pattern[str]]:
    """Return the regular expressions in what *name*, a file in *package*, holds under *topic*, by what they find."""
    return {what: re.compile(pattern) for what, pattern in own_data(package, name)[topic].items()}
