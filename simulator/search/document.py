"""The result of a search as the ``--json`` document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.results import SCHEMA_VERSION, taken
from simulator.results.step_view import SHARE_WORDS
from simulator.search.run import Ranking
from simulator.search.space import Space

_WORTH_SAYING = 0.01


def best_document(space: Space, machine: str, best: Ranking) -> dict[str, Any]:
    """Return *best* of *space* as plain data in SI units, which the keys name."""
    of_entry = "words=candidate.layout.words micro_batch=candidate.micro_batch micro_batches=candidate.micro_batches"
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": machine,
        **taken(space, "workload=question.workload device_count global_batch options=question.options"),
        **taken(best, "feasible_count infeasible simulated_count"),
        "ranking": [
            {
                **taken(entry, f"parallel=candidate.layout {of_entry} recompute=candidate.recompute step_time_s"),
                **taken(entry, "band outside memory_bytes fits_by_band"),
                "reason": loss_words(entry.shares_s),
                "account_s": entry.shares_s,
            }
            for entry in best.ranking
        ],
    }


def loss_words(shares_s: Mapping[str, float], most: int = 3) -> str:
    """Return what keeps a step from computing all the time, in words, the largest *most* parts first."""
    whole_s = sum(shares_s.values()) or 1.0
    lost = [name for name, s in shares_s.items() if name != "computing" and s >= _WORTH_SAYING * whole_s]
    return ", ".join(f"{SHARE_WORDS[name]} {100 * shares_s[name] / whole_s:.0f} %" for name in lost[:most]) or "-"
