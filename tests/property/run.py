"""Ask random questions under the rules of :mod:`tests.property.rules`.

``python -m tests.property.run --questions 20000`` asks them one by one.  Each question follows from its number, so
``--first`` continues where a run stopped, as ``--resume FILE`` does by itself.  What violates a rule is made simpler
while it still does, and printed with the commands that show it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from tests.property.anomalies import ANOMALY
from tests.property.asking import Asker
from tests.property.questions import Question, drawn
from tests.property.rules import RULES, fitting
from tests.property.ruling import SkipError

_MOST_SIMPLER = 60
_QUESTIONS_A_SESSION = 40  # a session keeps every machine it met


@dataclass(frozen=True)
class Asked:
    """A question that was asked under a rule; ``said`` is empty where the rule holds, and names a proven anomaly."""

    number: int
    rule: str
    said: str

    @property
    def is_violation(self) -> bool:
        """Whether the rule is violated, and by no proven anomaly."""
        return bool(self.said) and not self.said.startswith(ANOMALY)


def ask(numbers: Iterator[int], *, cheap: bool = False, only: str = "") -> Iterator[Asked]:
    """Yield what came of each question; *cheap*: of small machines; *only*: under this rule."""
    with tempfile.TemporaryDirectory() as folder:
        asker = Asker(Path(folder))
        for n, number in enumerate(numbers):
            if n % _QUESTIONS_A_SESSION == 0:
                asker = Asker(Path(folder))
            yield _asked(asker, number, cheap=cheap, only=only)


def _asked(asker: Asker, number: int, *, cheap: bool, only: str) -> Asked:
    question, rng = drawn(number, cheap=cheap)
    for rule in [only] if only else fitting(question, rng):
        seed = rng.randrange(1 << 30)
        said = _violated(asker, rule, question, seed)
        if said is None:
            continue
        if said and not said.startswith(ANOMALY):
            said = _simplest(asker, rule, question, seed, said)
        return Asked(number, rule, said)
    return Asked(number, "none", "")


def _violated(asker: Asker, rule: str, question: Question, seed: int) -> str | None:
    """Return how *question* violates *rule*: not at all (empty), or None where the rule says nothing of it."""
    try:
        return RULES[rule][0](asker, question, random.Random(seed))
    except (SkipError, InputError, Unsuitable):
        return None
    except Exception as error:  # what escapes is a violation too
        return f"raises {type(error).__name__}: {error}\n  {question.command(asker.folder)}"


def _simplest(asker: Asker, rule: str, question: Question, seed: int, said: str) -> str:
    """Return the violation of the simplest question found."""
    tries = 0
    again = True
    while again:
        again = False
        for simpler in question.simpler():
            tries += 1
            if tries > _MOST_SIMPLER:
                return said
            found = _violated(asker, rule, simpler, seed)
            if found and not found.startswith(ANOMALY):
                question, said, again = simpler, found, True
                break
    return said


def _files(said: str) -> str:
    """Return the files named in *said*, which are gone after the run."""
    paths = sorted({word for word in said.split() if word.endswith(".yaml") and Path(word).is_file()})
    return "".join(f"  {path}:\n{Path(path).read_text(encoding='utf-8')}" for path in paths)


def main() -> int:
    """Ask; return 1 where a rule is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.run", description=__doc__)
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first question")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--only", choices=list(RULES), default="", help="this rule")
    parser.add_argument("--cheap", action="store_true", help="small machines, as the tests ask")
    parser.add_argument("--resume", type=Path, help="keep the number of the next question in this file")
    given = parser.parse_args()
    first = given.first
    if given.resume and given.resume.exists():
        first = int(given.resume.read_text(encoding="utf-8"))
    until = given.first + given.questions
    began_s, counts, found, n_violations = time.monotonic(), Counter[str](), Counter[str](), 0
    for asked in ask(iter(range(first, until)), cheap=given.cheap, only=given.only):
        counts[asked.rule] += 1
        if asked.is_violation:
            n_violations += 1
            print(f"{asked.number} {asked.rule}: {asked.said}\n{_files(asked.said)}", flush=True)  # noqa: T201
        elif asked.said:
            found[asked.said] += 1
        if given.resume:
            given.resume.write_text(f"{asked.number + 1}\n", encoding="utf-8")
        if time.monotonic() - began_s > 60 * given.minutes:
            break
    n_asked, taken_s = sum(counts.values()), time.monotonic() - began_s
    print(f"{n_asked} questions in {taken_s:.0f} s, {n_violations} violations")  # noqa: T201
    for name, count in [*counts.most_common(), *found.most_common()]:
        print(f"  {count:6} {name}")  # noqa: T201
    return int(n_violations > 0)


if __name__ == "__main__":
    sys.exit(main())
