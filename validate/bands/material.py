"""Measured rows as errors of classes: :class:`BandRow`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from hashlib import sha256

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands import FORMATS, Chain
from simulator.bands.composition import Composition
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.records import dataclass
from validate.kinds.row import MeasuredRow

_MOST = 100  # rows of a class per place and source: more add time, but no information on the class


@dataclass(frozen=True, slots=True)
class BandRow:
    """A row: its classes (``chain``), its error log(measured / predicted), its place, and its question.

    ``place`` is a device or, for a collective, a machine; ``source`` is the data set and its publisher; ``group`` names
    the rows judged together with it.  ``alike`` is shared by rows that do the same work in another way or elsewhere;
    None if such rows are not compared.
    """

    chain: Chain
    error: float
    place: str
    source: str
    generation: str
    group: str
    question: Question
    composition: Composition
    alike: Hashable = None

    @property
    def machine(self) -> str:
        """The topology on which it was measured."""
        return self.question.where.topology


def measured(rows: Iterable[MeasuredRow], session: Session) -> Iterator[BandRow]:
    """Yield the *rows* that count; for software before 2019, only those of the fastest framework."""
    for row in rows:
        if row.skipped or row.asked is None or row.error is None or row.error <= -1.0:
            continue
        if row.labels.get("era") == "before 2019" and row.labels.get("framework_rank") != "best":
            continue
        try:
            composition = session.composed(row.asked.question)
        except InputError:
            continue
        chain = _chain(composition)
        if chain:
            facts = composition.facts
            place = facts.place
            yield BandRow(
                chain, -math.log1p(row.error), place, _source(row), facts.generation or place, _group(row, chain),
                row.asked.question, composition, _alike(row.asked.question),
            )  # fmt: skip


def thinned(rows: Iterable[BandRow]) -> list[BandRow]:
    """Return at most 100 of *rows* per class, place and source, chosen by the hash of their questions."""
    counts: Counter[tuple[str, str, str]] = Counter()
    kept = []
    for row in sorted(rows, key=lambda row: sha256(repr(row.question).encode()).digest()):
        counts[row.place, row.source, row.chain[0]] += 1
        if counts[row.place, row.source, row.chain[0]] <= _MOST:
            kept.append(row)
    return kept


def _source(row: MeasuredRow) -> str:
    """Return the data set and publisher of a row; the publisher is its source up to the first ``@``, ``:`` or ``#``."""
    publisher = re.split("[@:#]", row.labels.get("source", ""), maxsplit=1)[0]
    return " ".join(filter(None, (row.labels.get("dataset", ""), publisher.strip())))


def _chain(composition: Composition) -> Chain:
    """Return the classes of an answer; for an operator, those of the kernel class that takes most of its time."""
    if composition.chain:
        return composition.chain
    longest = max(composition.parts, key=lambda part: part.share, default=None)
    return () if longest is None else longest.chain


def _alike(question: Question) -> Hashable:
    """Return the key of questions for the same work in other ways or on other machines; None if not compared."""
    if isinstance(question, StepQuestion):
        return question.workload, question.options.mode, question.options.precision
    if isinstance(question, CollectiveQuestion):
        return question.collective, question.size_bytes
    return None


def _group(row: MeasuredRow, chain: Chain) -> str:
    """Return the group under which coverage is reported."""
    assert row.asked is not None
    question = row.asked.question
    if isinstance(question, StepQuestion):
        return chain[0].removeprefix("step ")
    if isinstance(question, CollectiveQuestion):
        return next(name for name in chain if not name.endswith(f" {question.collective}"))
    op = row.labels.get("op", "")
    if op in ("linear", "bmm", "matmul"):
        op = "products"
    form = FORMATS.get(row.labels.get("dtype", ""), "") if chain[-1] == "kernel" else ""
    return " ".join(filter(None, (op or chain[0], form)))
