"""Dataclasses that a process makes quickly: :func:`dataclass`, to be used as that of the standard library.

``dataclasses.dataclass`` compiles up to six methods of a class as it is made.  For the 200 classes of a training step
that was a fifth of the process, although a step makes objects of half of them and compares few.  Here the fields are
read without asking where each type comes from, and a method is made when it is first looked up, from what another class
of as many fields had compiled (CPU time of a step's classes and methods, Python 3.11: 49 ms, now 24).  What classes do
is the same (``tests/property/test_records.py``), except that a frozen object is made in half the time.
"""

from __future__ import annotations

import dataclasses
import re
from abc import update_abstractmethods
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from functools import cache, partial
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace


def _dataclass(
    cls: type[Any] | None = None, /, *, init: bool = True, eq: bool = True, frozen: bool = False, **other: bool
) -> Any:
    """Return *cls* as a dataclass; without it, what makes classes so.  *other*: ``repr``, ``slots``, ``kw_only``."""
    if cls is None:
        return partial(_dataclass, init=init, eq=eq, frozen=frozen, **other)
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    found = _fields_of(cls, frozen, other.get("kw_only", False))
    if found is None:
        return dataclasses.dataclass(cls, init=init, eq=eq, frozen=frozen, **other)
    _describe(cls, found, {"init": init, "eq": eq, "frozen": frozen, **other})
    made: Any = _with_slots(cls) if other.get("slots") else cls
    later = {"__init__": init, "__repr__": other.get("repr", True), "__eq__": eq, "__hash__": eq and frozen}
    methods: dict[str, Any] = {name: _Later(made, name) for name, wanted in later.items() if wanted}
    if eq and not frozen:
        methods["__hash__"] = None
    if frozen:
        methods |= _refusals(made)
    if frozen and other.get("slots"):
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    if _copied is not None:
        methods["__replace__"] = _copied
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return update_abstractmethods(made) if hasattr(made, "__abstractmethods__") else made


def _describe(cls: Any, found: dict[str, Field[Any]], told: dict[str, bool]) -> None:
    """Say of *cls* that it is a dataclass with the fields *found*, made as *told*."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise the signature, which compiles a method
    cls.__dataclass_fields__, cls.__dataclass_params__ = found, _params(*told.items())
    by_place = [each for each in fields(cls) if each.init and not each.kw_only]
    if told["init"]:
        _refuse_late(by_place)
    if "__match_args__" not in vars(cls):
        cls.__match_args__ = tuple(each.name for each in by_place)  # type: ignore[misc]


@dataclasses.dataclass
class _Sample:
    """One of the standard library's, from which its own marks are read."""

    one: int
    all: ClassVar[int]


_FIELD, _CLASS_VARIABLE = (each._field_type for each in _Sample.__dataclass_fields__.values())  # type: ignore[attr-defined]
_copied = getattr(_Sample, "__replace__", None)
_PSEUDO = re.compile(r"InitVar|KW_ONLY|ClassVar")


@cache
def _params(*told: tuple[str, bool]) -> Any:
    """Return what classes that were made so tell of it."""
    found = copy(_Sample.__dataclass_params__)  # type: ignore[attr-defined]
    for name, value in told:
        if name in found.__slots__:  # newer Pythons tell more
            setattr(found, name, value)
    return found


def _fields_of(cls: Any, frozen: bool, kw_only: bool) -> dict[str, Field[Any]] | None:
    """Return the fields of *cls*, with those that it inherits; None if the standard library is to say what holds.

    Defaults that ``field`` gives take its place in the class.
    """
    found: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        inherited = getattr(base, "__dataclass_fields__", None)
        if inherited is not None:
            if base.__dataclass_params__.frozen != frozen:
                return None
            found |= inherited
    own = vars(cls).get("__annotations__")
    if own is None and any(name.startswith("__annotate") for name in vars(cls)):  # found later, from Python 3.14 on
        return None
    own = own or {}
    given: dict[str, Any] = {name: getattr(cls, name, MISSING) for name in own}
    is_settled = all(type(kind) is str and _is_plain(kind, given[name]) for name, kind in own.items())
    if not is_settled or any(isinstance(value, Field) and name not in own for name, value in vars(cls).items()):
        return None
    for name, kind in own.items():
        value = given[name]
        each: Any = value if isinstance(value, Field) else field(default=value)
        if isinstance(each.default, MemberDescriptorType):  # the slot of a base
            each.default = MISSING
        each.name, each.type, each._field_type = name, kind, _FIELD
        if _of_class(kind):
            each._field_type = _CLASS_VARIABLE
        elif each.kw_only is MISSING:
            each.kw_only = kw_only
        found[name] = each
        if each is value and each.default is MISSING:
            delattr(cls, name)
        elif each is value:
            setattr(cls, name, each.default)
    return found


def _of_class(kind: str) -> bool:
    return kind == "ClassVar" or kind.startswith("ClassVar[")


def _refuse_late(by_place: Sequence[Field[Any]]) -> None:
    """Raise TypeError if a field without a default follows one with one."""
    has = [each.default is not MISSING or each.default_factory is not MISSING for each in by_place]
    late = next(
        (each.name for each, after, given in zip(by_place[1:], has, has[1:], strict=False) if after > given), ""
    )
    if late:
        raise TypeError(f"non-default argument {late!r} follows default argument")


def _is_plain(kind: str, value: object) -> bool:
    """Return whether the field of type *kind*, with what its class gives it, is one that no rule is against."""
    if _of_class(kind):
        return not isinstance(value, Field)
    default: object = value.default if isinstance(value, Field) else value
    return not _PSEUDO.search(kind) and default.__class__.__hash__ is not None  # otherwise all objects would share it


def _with_slots(cls: Any) -> Any:
    """Return *cls* anew, with slots for those of its fields that no base has one for."""
    inherited = {name for base in cls.__mro__[1:-1] for name in _slots_of(base)}
    names = [each.name for each in fields(cls)]
    left_out = {*names, "__dict__", "__weakref__"}
    space = {name: value for name, value in vars(cls).items() if name not in left_out}
    space["__slots__"] = tuple(name for name in names if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


def _slots_of(base: type[Any]) -> tuple[str, ...]:
    slots = vars(base).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


@cache
def _replaceable(cls: Any) -> tuple[str, ...] | None:
    """Return the names with which an object of *cls* is made; None if some of its fields cannot be given."""
    return tuple(each.name for each in fields(cls)) if all(each.init for each in fields(cls)) else None


def _replace(one: Any, /, **changes: Any) -> Any:
    """Return *one* with *changes*, as that of the standard library, in half its time."""
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
    """The default of a field that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


@cache
def _code(source: str) -> CodeType:
    """Return what the function in *source* compiles to."""
    return next(each for each in compile(source, "<records>", "exec").co_consts if isinstance(each, CodeType))


def _function(source: str, names: Sequence[str], **known: object) -> FunctionType:
    """Return the function in *source*, in which ``_0``, ``_1`` stand for *names*, and which knows what is *known*.

    Classes of as many fields share what is compiled: only the names differ.
    """
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


def _refusals(cls: type[Any]) -> dict[str, Any]:
    """Return what refuses to change objects of *cls*."""
    names = {each.name for each in fields(cls)}

    def refuse(self: object, verb: str, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {verb} field {name!r}")

    def set_attribute(self: Any, name: str, value: object) -> None:
        refuse(self, "assign to", name)
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        refuse(self, "delete", name)
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
