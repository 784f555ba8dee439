"""Conventions: what empty cells of a table stand for.

``conventions.yaml`` has those of every table, by what ran: framework, version, network and layout.  No rule looks at
the name of a data set, a machine, a source or a note.  What the authors of one table left out is in files of their own
(``published.yaml``), and becomes columns of the table (``validate table complete``) before anything is predicted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass, replace
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml

PUBLISHED = "published"
"""The name of the conventions of published tables that come along."""

NAMES = frozenset({"dataset", "machine", "source", "note", "row_id"})
"""Columns that say whose a row is; conventions of every table look at none of them."""

_COPIED = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
_KEYS = ("when", "unless", "set", "source")
_NEEDS = "conventions need the kind of table, and rules with when, set and source"
_INSTEAD = "put the columns into the table instead"
_Pattern = tuple[str, re.Pattern[str]]
Cell = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Convention:
    """A rule: where ``when`` matches and ``unless`` does not, the empty ``column`` stands for ``value``.

    A value may copy from other columns.  With ``by``, ``value`` is one of ``values``: that of the text in that column.
    """

    when: tuple[_Pattern, ...]
    unless: tuple[_Pattern, ...]
    column: str
    value: str
    source: str
    by: str = ""
    values: Mapping[str, str] | None = None
    place: Fault = Fault("")

    def fault(self, message: str) -> Fault:
        """Return a fault with *message* at the column that the rule sets."""
        return replace(self.place, message=message)

    def looks_at(self) -> set[str]:
        """Return the columns that the rule depends on."""
        copied = {match[1] for match in _COPIED.finditer(self.value)}
        return {column for column, _ in (*self.when, *self.unless)} | copied | ({self.by} - {""})

    def value_for(self, text: Cell) -> str | None:
        """Return what the column stands for in a row with *text*; None where the rule says nothing of it."""
        if not all(pattern.search(text(name)) for name, pattern in self.when):
            return None
        if any(pattern.search(text(name)) for name, pattern in self.unless):
            return None
        if self.values is not None:
            return self.values.get(text(self.by).lower())

        def copied(match: re.Match[str]) -> str:
            """Return a cell, or the first group that a pattern finds in it ("" where it finds none)."""
            if match[2] is None:
                return text(match[1])
            found = re.search(match[2], text(match[1]), re.IGNORECASE)
            return found[1] if found else ""

        return _COPIED.sub(copied, self.value)


Conventions = Mapping[str, Mapping[str, tuple[Convention, ...]]]
"""Rules by the kind of table and by the column that they fill; of several the first counts."""


@lru_cache(maxsize=2)
def conventions_of(name: str) -> Conventions:
    """Return the conventions of the file *name*.yaml that comes along."""
    file = f"{name}.yaml"
    raw = files("validate.tables").joinpath(file).read_bytes()
    return _rules(parse_yaml(raw, file, needs=_NEEDS, instead=_INSTEAD))


def read_conventions(file: str) -> Conventions:
    """Return the conventions in *file*, a path or ``published``; raises InputError with the place of each mistake."""
    if file == PUBLISHED:
        return conventions_of(PUBLISHED)
    if "." not in file and not Path(file).exists():
        raise InputError(f"--conventions {one_line(file, 60)}: no such file; {nearest(file, [PUBLISHED])}")
    return _rules(read_yaml(Path(file), needs=_NEEDS, instead=_INSTEAD))


def _rules(source: YamlSource) -> Conventions:
    faults: list[Fault] = []
    found: dict[str, dict[str, tuple[Convention, ...]]] = {}
    if not isinstance(source.data, dict):
        words = {list: "a list", type(None): "nothing"}.get(type(source.data), f"'{one_line(str(source.data), 40)}'")
        raise InputError(source.fault((), f"{_NEEDS}; found {words}"))
    for kind, rules in source.data.items():
        by_column = found.setdefault(str(kind), {})
        if not isinstance(rules, list):
            faults.append(source.fault((kind,), "a list of rules is needed"))
            continue
        for number, rule in enumerate(rules):
            wrong = _faults_of(rule)
            faults += [source.fault((kind, number, *path), message, key=True) for path, message in wrong]
            for each in _conventions(rule) if not wrong else ():
                place = source.fault((kind, number, "set", each.column), "", key=True)
                by_column[each.column] = (*by_column.get(each.column, ()), replace(each, place=place))
    if faults:
        raise InputError(faults)
    return found


def _faults_of(rule: Any) -> list[tuple[tuple[str, ...], str]]:
    """Return the mistakes of a *rule* as written, each with its place within it."""
    if not isinstance(rule, dict):
        return [((), "a rule with when, set and source is needed")]
    unknown = [str(key) for key in rule.keys() - {*_KEYS}]
    found: list[tuple[tuple[str, ...], str]] = [
        ((key,), f"a rule has no '{one_line(key, 40)}'; {nearest(key, _KEYS)}") for key in unknown
    ]
    found += [((), f"the rule lacks '{key}'") for key in ("when", "set", "source") if not rule.get(key)]
    parts = [(part, rule.get(part, {})) for part in ("when", "unless", "set")]
    for part, columns in parts:
        if not isinstance(columns, dict):
            return [*found, ((part,), f"'{part}' needs columns")]
    for part, column, value in ((part, *item) for part, columns in parts for item in columns.items()):
        chosen = list(value.values()) if isinstance(value, dict) else [{}]
        if part == "set" and (isinstance(value, list) or len(chosen) != 1 or not isinstance(chosen[0], dict)):
            found.append(((part, column), "a value, or one column with its values, is needed"))
        try:
            re.compile(str(value) if part != "set" else "")
        except re.error as error:
            found.append(((part, column), f"is no regular expression: {error}"))
    return found


def _conventions(rule: Mapping[str, Any]) -> Iterator[Convention]:
    when, unless = (
        tuple((column, re.compile(str(pattern), re.IGNORECASE)) for column, pattern in rule.get(part, {}).items())
        for part in ("when", "unless")
    )
    for column, value in rule["set"].items():
        found = Convention(when, unless, column, "" if isinstance(value, dict) else str(value), str(rule["source"]))
        if isinstance(value, dict):
            ((by, values),) = value.items()
            found = replace(found, by=by, values={str(key).lower(): str(each) for key, each in values.items()})
        yield found


def general() -> Conventions:
    """Return the conventions of every table."""
    return conventions_of("conventions")


def filled_columns(kind: str) -> frozenset[str]:
    """Return the columns of tables of *kind* whose empty cells may stand for something."""
    return frozenset(general().get(kind, ()))


def rule_columns(kind: str) -> frozenset[str]:
    """Return the columns that decide what empty cells stand for in tables of *kind*."""
    return frozenset(name for rules in general().get(kind, {}).values() for rule in rules for name in rule.looks_at())


def filled(kind: str, column: str, cell: Cell) -> str:
    """Return the value that an empty *column* of a row stands for, "" for none; *cell* returns the row's own cells."""
    return stands_for((general().get(kind, {}),), column, cell)[0]


def stands_for(
    rules: Sequence[Mapping[str, tuple[Convention, ...]]], column: str, cell: Cell
) -> tuple[str, Convention | None]:
    """Return what an empty *column* stands for, and the rule; of *rules* the first that applies counts."""

    def text(name: str) -> str:
        found = cell(name)
        if not found and name == "framework":
            return cell("software")
        return found or (stands_for(rules, name, cell)[0] if name != column else "")

    for rule in (rule for each in rules for rule in each.get(column, ())):
        value = rule.value_for(text)
        if value is not None:
            return value, rule
    return "", None
