"""The answers of a scenario's runs, with their expected values."""

import json
from collections.abc import Mapping
from math import inf
from typing import Any

from simulator.errors import Fault, InputError
from simulator.records import dataclass
from simulator.results import SCHEMA_VERSION, taken
from simulator.scenarios.expression import MissingPath
from simulator.scenarios.file import WORDS, AnswerRequest, Scenario


@dataclass(frozen=True, slots=True)
class ScenarioAnswer:
    """A value (SI or words) with what is expected; ``changed``: (run, what it changes of the machine)."""

    asked: AnswerRequest
    value: float | str
    low: float | None = None
    high: float | None = None
    words: str | None = None
    changed: tuple[tuple[str, str], ...] = ()

    @property
    def error(self) -> float | None:
        """The signed relative error to the nearest expected value; None if undefined."""
        if isinstance(self.value, str) or (self.low is None and self.high is None):
            return None
        nearest = max(self.value, -inf if self.low is None else self.low)
        nearest = min(nearest, inf if self.high is None else self.high)
        return 0.0 if self.value == nearest else (self.value - nearest) / abs(nearest) if nearest else None

    @property
    def holds(self) -> bool | None:
        """Whether the answer is within the file's tolerance, or equals the expected words; None without either."""
        within = self.asked.expected.within if self.asked.expected is not None else None
        if self.words is not None:
            return self.value == self.words
        if within is None:
            return None
        return self.error is not None and abs(self.error) <= within * (1 + 1e-12) + 1e-12


def answers_of(scenario: Scenario, documents: Mapping[str, Any]) -> tuple[ScenarioAnswer, ...]:
    """Return the answers from *documents*, the runs' JSON by name; raises InputError with each value not found."""
    faults: list[Fault] = []
    answers = []
    for number, asked in enumerate(scenario.answers):
        place: tuple[str | int, ...] = ("answers", number)
        try:
            value = asked.value.found(documents) if asked.unit == WORDS else asked.value.value(documents)
            if asked.unit == WORDS and not isinstance(value, str):
                value = json.dumps(value, separators=(",", ":"))
        except (MissingPath, ValueError) as error:
            faults.append(scenario.source.fault((*place, "value"), f"value: {error}"))
            continue
        changed, expected = _changed(asked, documents), asked.expected
        if expected is None:
            answers.append(ScenarioAnswer(asked, value, changed=changed))
            continue
        try:
            low, high = (None if end is None else end.value(documents) for end in (expected.low, expected.high))
            answers.append(ScenarioAnswer(asked, value, low, high, expected.words, changed))
        except (MissingPath, ValueError) as error:
            faults.append(scenario.source.fault((*place, expected.kind), f"{expected.kind}: {error}"))
    if faults:
        raise InputError(faults)
    return tuple(answers)


def _changed(asked: AnswerRequest, documents: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = []
    for run in dict.fromkeys(path.run for path in asked.value.paths):
        document = documents.get(run, {})
        for entry in [document, *document.get("results", [])[:1]]:
            if isinstance(entry, dict) and entry.get("changed"):
                found.append((run, "; ".join(entry["changed"]["what"])))
                break
    return tuple(found)


def answers_document(scenario: Scenario, answers: tuple[ScenarioAnswer, ...]) -> dict[str, Any]:
    """Return *answers* as plain data; published figures count as measured."""
    entries = [_entry(answer) for answer in answers]
    return {"schema_version": SCHEMA_VERSION, "scenario": scenario.name, "answers": entries}


def _entry(answer: ScenarioAnswer) -> dict[str, Any]:
    expected = answer.asked.expected
    low, high = (_in_unit(answer, end) for end in (answer.low, answer.high))
    figure = low if low == high else [low, high]
    return {
        "name": answer.asked.name,
        "value": _in_unit(answer, answer.value),
        "unit": answer.asked.unit,
        "expected": figure if answer.words is None and expected is not None else answer.words,
        "kind": None if expected is None else "ideal" if expected.kind == "ideal" else "measured",
        **taken(answer, "error within=asked.expected.within holds source=asked.expected.source"),
    }


def _in_unit(answer: ScenarioAnswer, value: float | str | None) -> float | str | None:
    return value * 100 if isinstance(value, float) and answer.asked.unit == "%" else value
