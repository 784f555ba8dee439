"""Scenario expressions equal Python's own arithmetic, with the same operations in the same order, to the last bit."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.scenarios.expression import parse_expression

# An expression for the parser, and its equivalent for Python without units and paths.
Pair = tuple[str, str]
UNITS = {"": 1, "s": 1, "ms": Fraction(1, 1000), "MB": 10**6, "GB/s": 10**9, "KiB": 1024, "%": Fraction(1, 100)}
PATHS = {"r.a": 7, "r.list[1]": 5, "r.list[-1]": 5, "s.by[name=x].n": 3}
DOCUMENTS = {"r": {"a": 7, "list": [4, 5]}, "s": {"by": [{"name": "y", "n": 1}, {"name": "x", "n": 3}]}}


def number(value: int, unit: str, blank: str) -> Pair:
    return f"{value}{blank if unit else ''}{unit}", repr(float(value * UNITS[unit]))


def joined(left: Pair, sign: str, right: Pair) -> Pair:
    return f"{left[0]} {sign} {right[0]}", f"{left[1]} {sign} {right[1]}"


def called(name: str, inner: list[Pair]) -> Pair:
    return f"{name}({', '.join(text for text, _ in inner)})", f"{name}([{', '.join(python for _, python in inner)}])"


def compound(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.one_of(
        st.builds(joined, inner, st.sampled_from("+-*/"), inner),
        inner.map(lambda pair: (f"({pair[0]})", f"({pair[1]})")),
        inner.map(lambda pair: (f"-({pair[0]})", f"-({pair[1]})")),
        st.builds(called, st.sampled_from(["min", "max"]), st.lists(inner, min_size=1, max_size=3)),
    )


NUMBERS = st.builds(number, st.integers(0, 999), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
READ = st.sampled_from(sorted(PATHS)).map(lambda path: (path, repr(float(PATHS[path]))))


@given(st.recursive(NUMBERS | READ, compound, max_leaves=12))
def test_an_expression_is_what_python_makes_of_it(pair: Pair) -> None:
    text, python = pair
    try:
        exact = eval(python)
    except (ZeroDivisionError, OverflowError):
        assume(False)
    assume(math.isfinite(exact))
    assert parse_expression(text).value(DOCUMENTS) == exact


@given(st.text(alphabet='0123456789.+-*/()[]sMB% ra"=,', max_size=40))
def test_any_text_is_parsed_or_refused_in_words(text: str) -> None:
    try:
        parse_expression(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017
