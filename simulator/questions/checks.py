"""What questions refuse when they are made: values that a field cannot have, and fields that nothing would read."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from simulator.errors import Fault, InputError, mention, nearest, one_line

MOST = 10**8
"""The most of anything that is counted: samples, batches, threads."""
WITHOUT_NCCL = f"is NCCL's; {mention('strategy', 'nccl')} reads it"


class From(NamedTuple):
    """The least and the most of a number: ``Annotated[int, From(1)]``; ``above``: it is more than the least."""

    least: float
    most: float = math.inf
    above: bool = False


class Rule(NamedTuple):
    """What a field may be: one of ``choices`` (or several, if it ``is_tuple``), a whole number, within ``limits``."""

    choices: tuple[str, ...]
    is_tuple: bool
    is_whole: bool
    limits: From | None


class Checked:
    """A question that raises InputError when it is made: for fields whose values they cannot have, else for its faults.

    ``faults_of``: the field of another question that holds it, under which its faults are told.
    """

    __slots__ = ()
    faults_of: ClassVar[str] = ""

    def __post_init__(self) -> None:
        told = f"{mention(self.faults_of)}: " if self.faults_of else ""
        refuse_all(list(_misfits(self)) or (told + why for why in self._faults()))

    def _faults(self) -> Iterable[str]:
        return ()

    @staticmethod
    def unread(_asked: Any) -> Iterator[tuple[str, str]]:
        """Yield the fields that a question with the fields of *asked* does not read, and why."""
        return iter(())


def refuse_all(faults: Iterable[str]) -> None:
    """Raise InputError with all *faults*, if there are any."""
    found = [Fault(fault) for fault in faults]
    if found:
        raise InputError(found)


Q = TypeVar("Q", bound=Checked)


def unread_faults(question: Any) -> Iterator[str]:
    """Yield the faults of fields that were said and that *question* does not read, each once."""
    usual, why = _usual(question.__class__), dict[str, str]()
    said = {name for name, value in usual.items() if (own := getattr(question, name)) is not value and own != value}
    for name, reason in question.unread(question) if said else ():
        if name in said:
            why.setdefault(name, f"{_as_switch(name, usual)}: {reason}")
    yield from why.values()


def in_ways(cls: type[Q], values: Mapping[str, Any], ways: Iterable[Mapping[str, Any]]) -> list[Q]:
    """Return a question with *values* for each of *ways*, each without the values that it does not read.

    Raises InputError for what none of them reads.
    """
    found: dict[Q, None] = {}
    never: dict[str, str] | None = None
    usual = _usual(cls)  # type: ignore[arg-type]
    for way in ways:
        said = {name: value for name, value in {**values, **way}.items() if value != usual.get(name, MISSING)}
        unread: dict[str, str] = {}
        for name, why in cls.unread(SimpleNamespace(**{**usual, **said})):
            if name in said:
                unread.setdefault(name, why)
        never = unread if never is None else {name: why for name, why in never.items() if name in unread}
        read = {name: value for name, value in said.items() if name not in unread}
        # What is about another value that is not read is not read either; the other one's fault says why.
        about = {name for name, _ in cls.unread(SimpleNamespace(**{**usual, **read}))} if unread else set()
        found[cls(**{name: value for name, value in read.items() if name not in about})] = None
    refuse_all(f"{_as_switch(name, usual)}: {why}" for name, why in (never or {}).items())
    return list(found)


def changed(question: Q, **changes: Any) -> Q:
    """Return *question* with *changes*, and without the values that it does not read then."""
    cls: Any = type(question)
    said = {field.name: getattr(question, field.name) for field in fields(cls)} | changes
    unread = {name for name, _ in question.unread(SimpleNamespace(**said))}
    usual = _usual(cls)
    return type(question)(**{name: usual[name] if name in unread else value for name, value in said.items()})


def _as_switch(name: str, usual: Mapping[str, Any]) -> str:
    return mention(name, False) if usual[name] is True else mention(name)


@cache
def _usual(cls: type) -> dict[str, Any]:
    return {field.name: field.default for field in fields(cls) if field.default is not MISSING}


def is_served(strategy: str) -> bool:
    """Return whether *strategy* exchanges through parameter servers."""
    return strategy.startswith("parameter-server")


def exchange_faults(asked: Any) -> Iterator[str]:
    """Yield the faults of the places of servers, and of the GPUs that take part in this order."""
    if len(asked.servers) > 1 and is_served(asked.strategy) and {"own", "workers"}.intersection(asked.servers):
        yield f"{mention('servers', one_line(','.join(asked.servers), 60))}: own and workers stand alone"
    gpus = asked.gpus
    if gpus is not None and not gpus:
        yield f"{mention('gpus')}: at least one GPU takes part"
    if gpus and len(set(gpus)) < len(gpus):
        twice = next(gpu for gpu in gpus if gpus.count(gpu) > 1)
        yield f"{mention('gpus', ','.join(map(str, gpus)))}: GPU {twice} is named twice"
    if gpus and min(gpus) < 0:
        yield f"{mention('gpus')}: GPUs are counted from 0; got {min(gpus)}"


def out_of(name: str, value: float, limits: From) -> str:
    """Return the fault of a *value* of the field *name* that is not within *limits*; empty if it is."""
    if limits.least <= value <= limits.most and not (limits.above and value == limits.least):
        return ""
    least = f"{limits.least:g}"
    within = f"must be at least {least}" if limits.most == math.inf else f"from {least} to {limits.most:.0f}"
    return f"{mention(name, value)}: {f'must be more than {least}' if limits.above else within}"


def _misfits(question: object) -> Iterator[str]:
    cls: Any = type(question)
    for name, (choices, is_tuple, is_whole, limits) in field_rules(cls).items():
        value = getattr(question, name)
        if choices:
            for word in value if is_tuple else (value,):
                if word not in choices:
                    hint = nearest(str(word), filter(None, choices))
                    yield f"{mention(name, one_line(word, 40))}: no such choice; {hint}"
        elif value is None:
            continue
        elif is_whole and (isinstance(value, bool) or not isinstance(value, int)):
            yield f"{mention(name, one_line(value, 60))}: must be a whole number"
        elif limits is not None and (fault := out_of(name, value, limits)):
            yield fault


@cache
def field_rules(cls: Any) -> Mapping[str, Rule]:
    """Return the rules of the fields of *cls*, from their types; one whose type says nothing has none."""
    rules = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        optional = type(None) in get_args(hint)
        inner = next(each for each in get_args(hint) if each is not type(None)) if optional else hint
        limits = From(0) if inner is int else None
        if get_origin(inner) is Annotated:
            inner, limits = get_args(inner)[:2]
        is_tuple = get_origin(inner) is tuple
        one = get_args(inner)[0] if is_tuple else inner
        choices: tuple[Any, ...] = get_args(one) if get_origin(one) is Literal else ()
        if optional and choices:
            choices = (*choices, None)  # is a value too
        if choices or inner is int or limits is not None:
            rules[name] = Rule(choices, is_tuple, inner is int, limits)
    return rules
