"""A few of many alike cases: as many as show each pair of properties that occurs together."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

from simulator.workload.zoo import ZooEntry
from simulator.workload.zoo.registry import find_entry, network_names


def covering(cases: Mapping[str, Sequence[Hashable]]) -> list[str]:
    """Return names of *cases* whose properties have each pair of values that the properties of all have, in order.

    Every case has the same number of properties.  The case with most pairs that are not yet covered comes next, the
    first of equals.
    """
    pairs = {name: set(combinations(enumerate(properties), 2)) for name, properties in cases.items()}
    left = set().union(*pairs.values())
    chosen: list[str] = []
    while left:
        best = max(pairs, key=lambda name: len(pairs[name] & left))
        chosen.append(best)
        left -= pairs.pop(best)
    return [name for name in cases if name in set(chosen)]


def one_of_each_code() -> list[str]:
    """Return networks of the zoo: for each code that makes them, or family of image networks, one of each kind."""
    entries = {name: find_entry(name) for name in network_names()}
    return covering(
        {name: (_code(name, each), each.sample, each.in_half, each.length_known) for name, each in entries.items()}
    )


def _code(name: str, entry: ZooEntry) -> str:
    stem = re.match("[a-z]+", name)
    return str(entry.code) if entry.code is not None else stem[0] if stem else name
