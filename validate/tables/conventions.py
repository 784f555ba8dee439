"""Conventions of tables: the meaning of cells left empty, by ``conventions.yaml`` and ``batches.yaml``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

import yaml

from simulator.records import dataclass

_COPIED = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
_NUMBERS = {"fp32": "^(fp32|tf32)$", "half": "^(fp16|bf16)$"}
_Pattern = tuple[str, re.Pattern[str]]


@dataclass(frozen=True, slots=True)
class _Rule:
    when: tuple[_Pattern, ...]
    unless: tuple[_Pattern, ...]
    column: str
    value: str


@lru_cache(maxsize=1)
def _rules() -> Mapping[str, Mapping[str, tuple[_Rule, ...]]]:
    """Return the rules of each kind of table, by the column they fill, in order."""
    written = yaml.safe_load(files("validate.tables").joinpath("conventions.yaml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, tuple[_Rule, ...]]] = {}
    for kind, rules in written.items():
        by_column = found.setdefault(kind, {})
        for rule in rules:
            when, unless = (
                tuple((column, re.compile(pattern, re.IGNORECASE)) for column, pattern in rule.get(part, {}).items())
                for part in ("when", "unless")
            )
            for column, value in rule["set"].items():
                by_column[column] = (*by_column.get(column, ()), _Rule(when, unless, column, str(value)))
    for rule in _batches():
        by_column = found.setdefault("training", {})
        by_column[rule.column] = (*by_column.get(rule.column, ()), rule)
    return found


def _batches() -> Iterator[_Rule]:
    """Yield the rules of ``batches.yaml``: the batch size for a machine, precision and network."""
    written = yaml.safe_load(files("validate.tables").joinpath("batches.yaml").read_text(encoding="utf-8"))
    for machines in written["machines"]:
        for kind, dtypes in _NUMBERS.items():
            for model, batch in machines[kind].items():
                patterns = {"dataset": written["dataset"], "machine": machines["machine"], "dtype": dtypes}
                when = {**patterns, "model": f"^{re.escape(model)}$"}
                compiled = tuple((column, re.compile(pattern, re.IGNORECASE)) for column, pattern in when.items())
                yield _Rule(compiled, (), "batch_per_gpu", str(batch))


def _copied(text: str, pattern: str | None) -> str:
    """Return *text*, or the first group that *pattern* finds in it ("" where it finds none)."""
    if pattern is None:
        return text
    found = re.search(pattern, text, re.IGNORECASE)
    return found[1] if found else ""


def filled_columns(kind: str) -> tuple[str, ...]:
    """Return the columns that a rule may fill in tables of *kind*."""
    return tuple(_rules().get(kind, ()))


def filled(kind: str, column: str, cell: Callable[[str], str]) -> str:
    """Return the value that an empty *column* of a row stands for, "" for none; *cell* returns the row's own cells."""

    def text(name: str) -> str:
        found = cell(name)
        if not found and name == "framework":
            return cell("software")
        return found or (filled(kind, name, cell) if name != column else "")

    for rule in _rules().get(kind, {}).get(column, ()):
        if all(pattern.search(text(name)) for name, pattern in rule.when) and not any(
            pattern.search(text(name)) for name, pattern in rule.unless
        ):
            return _COPIED.sub(lambda match: _copied(text(match[1]), match[2]), rule.value)
    return ""
