"""Dataclasses that a process makes quickly: :func:`dataclass`, to be used as that of the standard library.

``dataclasses.dataclass`` compiles up to six methods of a class as it is made.  For the 200 classes of a training step
that was a fifth of the process, although a step makes objects of half of them and compares few.  Here a method is
compiled when it is first looked up, which made a process that answers one exchange or one step about a sixth shorter
(CPU time, Python 3.11).  What classes do is the same (``tests/property/test_records.py``), except that a frozen object
is made in half the time, and that a field without a default after one with one is refused with the first object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, is_dataclass
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass


def _dataclass(
    cls: type[Any] | None = None, /, *, init: bool = True, eq: bool = True, frozen: bool = False, **other: bool
) -> Any:
    """Return *cls* as a dataclass; without it, what makes classes so.  *other*: ``repr``, ``slots``, ``kw_only``."""
    if cls is None:
        return partial(_dataclass, init=init, eq=eq, frozen=frozen, **other)
    if any(map(is_dataclass, cls.__mro__[1:])):  # which frozen classes may stand on which is for dataclasses to say
        return dataclasses.dataclass(cls, init=init, eq=eq, frozen=frozen, **other)
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise the signature, which compiles a method
    made: Any = dataclasses.dataclass(cls, **{**other, "init": False, "repr": False, "eq": False})
    asked = {"init": init, "repr": other.get("repr", True), "eq": eq, "frozen": frozen}
    for name, value in asked.items():
        setattr(made.__dataclass_params__, name, value)
    later = {"__init__": init, "__repr__": asked["repr"], "__eq__": eq, "__hash__": eq and frozen}
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


if not TYPE_CHECKING:
    dataclass = _dataclass


class _Later:
    """A method of a class until it is first looked up, which puts the compiled one in its place."""

    def __init__(self, cls: type[Any], name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        cls, name = self._cls, self._name
        names: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__, "_factory": _Factory()}
        exec(_SOURCES[name](cls, names), names)
        compiled = names[name]
        compiled.__qualname__ = f"{cls.__qualname__}.{name}"
        if name == "__init__":
            compiled.__annotations__ = {**{each.name: each.type for each in fields(cls) if each.init}, "return": None}
        if name == "__repr__":
            compiled = recursive_repr()(compiled)
        setattr(cls, name, compiled)
        return compiled.__get__(instance, owner)


class _Factory:
    """The default of a field that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type[Any], names: dict[str, Any]) -> str:
    """Return the source of ``__init__``, and add the values that it names to *names*."""
    parameters, body = ["self"], []
    for each in sorted(fields(cls), key=lambda each: bool(each.kw_only)):
        name, default, value = each.name, f"_default_{each.name}", each.name
        made = each.default_factory is not MISSING
        given = made or each.default is not MISSING
        names[default] = each.default_factory if made else each.default
        if each.init:
            if each.kw_only and "*" not in parameters:
                parameters.append("*")
            parameters.append(f"{name}=_factory" if made else f"{name}={default}" if given else name)
            value = f"{default}() if {name} is _factory else {name}" if made else name
        elif given:
            value = f"{default}()" if made else default
        else:
            continue
        body.append(f"_set(self, {name!r}, {value})" if cls.__dataclass_params__.frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body or ["pass"])


def _repr(cls: type[Any], _: object) -> str:
    shown = ", ".join(f"{each.name}={{self.{each.name}!r}}" for each in fields(cls) if each.repr)
    return f"def __repr__(self): return f'{{self.__class__.__qualname__}}({shown})'"


def _eq(cls: type[Any], _: object) -> str:
    compared = [each for each in fields(cls) if each.compare]
    same = f"{_values('self', compared)} == {_values('other', compared)}"
    return f"def __eq__(self, other): return {same} if self.__class__ is other.__class__ else NotImplemented"


def _hash(cls: type[Any], _: object) -> str:
    hashed = [each for each in fields(cls) if (each.compare if each.hash is None else each.hash)]
    return f"def __hash__(self): return hash({_values('self', hashed)})"


def _values(of: str, held: Iterable[Field[Any]]) -> str:
    return f"({''.join(f'{of}.{each.name}, ' for each in held)})"


_SOURCES: dict[str, Callable[[type[Any], dict[str, Any]], str]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
}


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
