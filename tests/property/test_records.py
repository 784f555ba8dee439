"""``simulator.records`` against the standard library: the same classes, asked the same, answer alike."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import records
from tests.examples import few

VALUES = st.one_of(st.integers(-2, 2), st.sampled_from(["", "x"]), st.just(float("nan")), st.tuples(st.booleans()))
NAMES = ("alpha", "beta", "gamma", "delta")


@st.composite
def field_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of ``field``, or only a default, which is a plain value; or neither."""
    kind = draw(st.sampled_from(["bare", "plain", "default", "factory", "neither"]))
    if kind == "bare":
        return {}
    if kind == "plain":
        return {"plain": draw(VALUES)}
    found: dict[str, Any] = {name: draw(st.booleans()) for name in ("init", "repr", "compare", "kw_only")}
    found["hash"] = draw(st.sampled_from([None, True, False]))
    if kind == "default":
        found["default"] = draw(VALUES)
    elif kind == "factory":
        found["default_factory"] = list if draw(st.booleans()) else tuple
    return found


def post_init(self: Any) -> None:
    object.__setattr__(self, NAMES[0], (getattr(self, NAMES[0], None), "seen"))


OWN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "post_init": {"__post_init__": post_init},
    "repr": {"__repr__": lambda self: "own"},
    "hash": {"__hash__": lambda self: 7},
    "eq": {"__eq__": lambda self, other: True},
    "order": {"__lt__": lambda self, other: True},
    "set": {"__setattr__": lambda self, name, value: object.__setattr__(self, name, (value,))},
    "no_hash": {"__hash__": None},
    "init": {"__init__": lambda self, *given: object.__setattr__(self, NAMES[0], given)},
}
CLASSES = st.fixed_dictionaries(
    {
        "fields": st.lists(field_arguments(), min_size=1, max_size=len(NAMES)),
        "how": st.fixed_dictionaries(
            {name: st.booleans() for name in ("init", "repr", "eq", "frozen", "slots", "kw_only")}
            | {name: st.sampled_from([False, False, False, True]) for name in ("order", "unsafe_hash")}
        ),
        "own": st.sampled_from(sorted(OWN)),
        "below": st.sampled_from([*[None] * 4, "alike", "alike", "alike", "other", "plain", "both"]),
        "below_by_ours": st.booleans(),
    }
)


def made(decorator: Callable[..., Any], said: dict[str, Any]) -> Any:
    """Return the class that *said* describes; with ``below``, a class with one more field that stands on it.

    That is as frozen or not (other), stands on one that is not as frozen too (both), or is no dataclass (plain).
    """
    space: dict[str, Any] = {"__module__": __name__, "__qualname__": "Made", "__doc__": "Doc.", **OWN[said["own"]]}
    space["__annotations__"] = dict.fromkeys(NAMES[: len(said["fields"])], "object")
    for name, arguments in zip(NAMES, said["fields"], strict=False):
        if "plain" in arguments:
            space[name] = arguments["plain"]
        elif arguments:
            space[name] = dataclasses.field(**arguments)
    found = decorator(**said["how"])(type("Made", (), space))
    if said["below"] is not None:
        lower = {"__module__": __name__, "__qualname__": "Made", "__doc__": "Doc.", "__annotations__": {"last": "int"}}
        bases, how = (found,), {**said["how"], "frozen": said["how"]["frozen"] != (said["below"] == "other")}
        if said["below"] == "both":
            beside = decorator(frozen=not how["frozen"], eq=False)(type("Beside", (), {"__doc__": "Doc."}))
            bases = (found, beside)
        found = type("Made", bases, {**lower, "last": 3})
        if said["below"] != "plain":
            found = (decorator if said["below_by_ours"] else dataclasses.dataclass)(**how)(found)
    return found


def outcome(ask: Callable[[], Any]) -> Any:
    """Return what *ask* returns, or the error that it raises."""
    try:
        return ask()
    except (TypeError, AttributeError, ValueError) as error:
        return type(error), str(error)


def seen(one: Any, cls: Any) -> list[Any]:
    """Return what can be seen of *one*, an object of *cls*."""
    names = [each.name for each in dataclasses.fields(cls)]
    held = [outcome(lambda name=name: getattr(one, name)) for name in names]  # type: ignore[misc]
    globals()["Made"] = cls  # where pickle looks
    copies = [
        outcome(lambda make=make: [getattr(make(one), name) for name in names])  # type: ignore[misc]
        for make in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)))
    ]
    found = [held, copies, outcome(lambda: dataclasses.asdict(one))]
    found.append(outcome(lambda: one == copy.copy(one)) is True)
    if cls.__hash__ is not object.__hash__:
        found.append(outcome(lambda: hash(one)))
    if cls.__repr__ is not object.__repr__:
        found.append(outcome(lambda: repr(one)))
    for replace in (dataclasses.replace, records.replace):
        new = outcome(lambda replace=replace: replace(one, alpha=5))
        found.append(new if isinstance(new, tuple) else [outcome(lambda n=n, new=new: getattr(new, n)) for n in names])
    assert same(*found[-2:])
    for change in (lambda: setattr(one, NAMES[0], 9), lambda: delattr(one, NAMES[0])):
        found += [outcome(change), outcome(lambda: getattr(one, NAMES[0]))]
    return found


def same(first: Any, second: Any) -> bool:
    return repr(first) == repr(second)  # in which NaN equals NaN


@settings(max_examples=few(400))
@given(CLASSES, st.lists(VALUES, max_size=5), st.dictionaries(st.sampled_from([*NAMES, "last", "omega"]), VALUES))
def test_classes_do_what_those_of_the_standard_library_do(
    said: dict[str, Any], values: list[Any], named: dict[str, Any]
) -> None:
    theirs, ours = (outcome(lambda d=d: made(d, said)) for d in (dataclasses.dataclass, records.dataclass))  # type: ignore[misc]
    if isinstance(theirs, tuple):
        assert theirs == ours
        return
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    for what in ("__match_args__", "__dataclass_fields__", "__slots__", "__doc__"):
        assert same(getattr(ours, what, None), getattr(theirs, what, None)), what
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    for given_named in ({}, named):
        one, other = outcome(lambda: ours(*values, **given_named)), outcome(lambda: theirs(*values, **given_named))  # noqa: B023
        if isinstance(other, tuple):
            assert one == other
        else:
            assert same(seen(one, ours), seen(other, theirs))


def test_a_method_is_compiled_when_it_is_first_asked_for() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0

    names = ("__init__", "__eq__", "__hash__", "__repr__")
    assert not any(inspect.isfunction(vars(Point)[name]) for name in names)
    assert Point(1) == Point(1, 0)
    assert [inspect.isfunction(vars(Point)[name]) for name in names] == [True, True, False, False]
    assert {Point(1): 2}[Point(1)] == 2
    assert repr(Point(1)).endswith("Point(x=1, y=0)")
    assert all(inspect.isfunction(vars(Point)[name]) for name in names)


def test_an_object_that_holds_itself_is_shown() -> None:
    @records.dataclass
    class Knot:
        ends: list[Any]

    knot = Knot([])
    knot.ends.append(knot)
    assert repr(knot).endswith("Knot(ends=[...])")


def test_a_field_without_a_default_comes_first() -> None:
    with pytest.raises(TypeError, match="non-default argument 'y' follows"):

        @records.dataclass
        class Late:
            x: int = 0
            y: int  # type: ignore[misc]


def test_a_field_for_init_alone_is_refused() -> None:
    with pytest.raises(TypeError, match="'x' is an InitVar"):

        @records.dataclass
        class Seed:
            x: dataclasses.InitVar[int]


@pytest.mark.parametrize("decorator", [records.dataclass, dataclasses.dataclass])
def test_below_a_frozen_class_only_fields_are_frozen(decorator: Any) -> None:
    @decorator(frozen=True)
    class Upper:
        x: int

    @decorator(frozen=True)
    class Middle(Upper):
        y: int = 2

    class Lower(Middle):
        pass

    one: Any = Lower(1)
    one.z = 3
    assert vars(one) == {"x": 1, "y": 2, "z": 3}
    del one.z
    for name in ("x", "y"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(one, name, 0)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(one, name)
    above: Any = Middle(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        above.z = 3


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("decorator", [records.dataclass, dataclasses.dataclass])
def test_a_class_is_as_frozen_as_its_bases(decorator: Any, frozen: bool) -> None:
    upper: Any = records.dataclass(frozen=frozen)(type("Upper", (), {"__annotations__": {"x": int}}))
    lower = type("Lower", (upper,), {"__annotations__": {"y": int}})
    with pytest.raises(TypeError, match=r"cannot inherit (non-)?frozen dataclass from a (non-)?frozen one"):
        decorator(frozen=not frozen)(lower)
    assert decorator(frozen=frozen)(type("Lower", (upper,), {"__annotations__": {"y": int}}))(1, 2).y == 2
