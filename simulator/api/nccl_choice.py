"""Whether NCCL could do an exchange faster than with the algorithm that it chooses: :func:`with_faster_algorithm`.

NCCL chooses by planned times, from its own tables, and not by what an exchange costs: for two machines with fast
NVLink, its tables cap the rate of trees (NVIDIA/nccl ``src/graph/tuning.cc``, perChMaxTreeBws).
"""

from __future__ import annotations

from contextlib import suppress

from simulator.api.session import Session
from simulator.collectives.request import Unsuitable
from simulator.errors import InputError
from simulator.questions.collective import ALGORITHMS
from simulator.records import replace
from simulator.results.result import Result
from simulator.units import format_duration

_TOLD_BELOW = 0.9  # of the time with NCCL's choice
_MOST_EVENTS = 5_000  # of an answer that is worth simulating with each other algorithm, some 0.1 s each
_IN_NCCL_ALGO = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT"}


def with_faster_algorithm(session: Session, result: Result) -> Result:
    """Return *result* with a note of the fastest other algorithm, if that takes more than a tenth off the time.

    Only answers of NCCL's own choice between machines get one: inside a machine, no measurement forces a tree.  So do
    only those that take few events, because each other algorithm is simulated.
    """
    question, chosen = result.asked, result.facts.get("algorithm")
    if question is None or question.strategy != "nccl" or question.algorithm is not None or chosen is None:
        return result
    machine = result.timeline.machine
    hosts = {machine.nodes[machine.gpus[gpu]].host for gpu in result.gpus}
    if len(hosts) < 2 or result.simulation_events > _MOST_EVENTS:
        return result
    times = {}
    for algorithm in ALGORITHMS:
        with suppress(InputError, Unsuitable):
            if algorithm != chosen:
                times[algorithm] = session.time_s(replace(question, algorithm=algorithm))
    best = min(times, key=lambda algorithm: times[algorithm], default=None)
    if best is None or times[best] >= _TOLD_BELOW * result.sync_time_s:
        return result
    words = f"NCCL chooses {str(chosen).replace('_', ' ')} by its own tables; NCCL_ALGO={_IN_NCCL_ALGO[best]}"
    note = f"{words} would take {format_duration(times[best])} in place of {format_duration(result.sync_time_s)}"
    return replace(result, notes=(*result.notes, note))
