"""Strategies to measure, as each rank's sends and adds: the file that the measuring side reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.api import Session
from simulator.api.exchanges import exchange_of, stands_of
from simulator.console.files import OutputFile
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.results.document import plain

_BY_TORCH = ("nccl", "gloo")  # measured as the library's own collective, without a schedule


def exchanges_of(session: Session, questions: Sequence[CollectiveQuestion]) -> list[dict[str, Any]]:
    """Return the exchange of each of *questions*, as plain data.

    Raises InputError where a strategy does not fit the machine or fewer than two ranks take part.
    """
    found = []
    for question in questions:
        stands = stands_of(session, question)
        if len(stands) < 2:
            raise InputError("--strategy: one GPU exchanges with nobody; name a topology with two or more")
        asked = {"strategy": question.strategy, "collective": question.collective, "n_ranks": len(stands)}
        if question.strategy in _BY_TORCH:
            found.append({**asked, "bytes": int(question.size_bytes), "stands": [plain(stand) for stand in stands]})
        else:
            found.append({**exchange_of(session, question).data(), "bytes": int(question.size_bytes)})
    return found


def write_exchanges(folder: Path, exchanges: Sequence[dict[str, Any]]) -> None:
    """Write *exchanges* into *folder* for the measuring side; raises InputError where that fails."""
    from validate.machine.measure.groups import EXCHANGES  # imports torch

    with OutputFile("--out", str(folder / EXCHANGES)) as file:
        file.write((json.dumps({"schema_version": 1, "exchanges": list(exchanges)}) + "\n").encode())
