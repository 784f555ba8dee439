"""Put faults into published logs and count what ``validate check`` finds.

``python -m tests.faulty.run COLLECTIVES.csv ... --logs 200`` makes half of the logs healthy, as they were measured, and
half with one of :data:`tests.faulty.faults.FAULTS`: measured times are multiplied by the simulated times with the
fault over those without.  All have noise of 5 %.  A fault counts only where it makes the largest sizes 1.3 times as
slow or more.  Each log follows from its number and the seed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.api import Session
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from tests.faulty.faults import FAULTS, CannotHaveItError
from tests.published_logs import PublishedRun, published_runs
from validate.check.check import CheckedLog, check_log

NOISE = 0.05
_LEAST = 1.3  # times as slow
_MOST_GPUS = 64
_FEWEST_SIZES = 3
_MOST_TRIES = 60
_LOGS_A_SESSION = 30  # a session keeps every machine it met


@dataclass(frozen=True)
class FoundFault:
    """One log: the *fault* put in, empty for none, and what was found."""

    machine: str
    fault: str
    checked: CheckedLog

    @property
    def is_slow(self) -> bool:
        """Whether the log is called slow."""
        return self.checked.verdict == "slow"

    @property
    def first_causes(self) -> int:
        """How many causes the first two explanations name."""
        return sum(1 + len(each.alike) for each in self.checked.explanations[:2])

    def rank(self, most: int = 99) -> int:
        """Return the place of the fault among the causes, from 1; 0 where it is not among *most*."""
        words = FAULTS[self.fault][1]
        for place, each in enumerate(self.checked.explanations[:most], 1):
            if any(word in said for word in words for said in (each.words, *each.alike)):
                return place
        return 0


def found_faults(tables: Sequence[Path], logs: int, seed: int = 0) -> Iterator[FoundFault]:
    """Yield what is found in each of *logs* logs, healthy and faulty in turn."""
    places: dict[tuple[str, int], list[PublishedRun]] = defaultdict(list)
    for run in published_runs(tables):
        if run.trust in ("A", "B") and len(run.times) >= _FEWEST_SIZES and run.hosts * len(run.devices) <= _MOST_GPUS:
            places[run.where.topology, run.hosts].append(run)
    names = list(FAULTS)
    session = Session()
    for number in range(logs):
        if number % _LOGS_A_SESSION == 0:
            session = Session()
        rng = random.Random(f"{seed} {number}")
        fault = names[number // 2 % len(names)] if number % 2 else ""
        for _ in range(_MOST_TRIES):
            run = rng.choice(places[rng.choice(sorted(places))])
            try:
                times = faulty_times(session, run, fault, rng)
                checked = check_log(session, run.log(times), run.where.topology, nodes=run.where.nodes, nccl=run.nccl)
            except (CannotHaveItError, InputError):
                continue
            yield FoundFault(run.machine, fault, checked)
            break


def faulty_times(session: Session, run: PublishedRun, fault: str, rng: random.Random) -> list[tuple[int, float]]:
    """Return the times of *run* with *fault* and noise; raises CannotHaveItError where it changes too little."""
    factors = {size: 1.0 for size, _ in run.times}
    if fault:
        plain = check_log(session, run.log(), run.where.topology, nodes=run.where.nodes, nccl=run.nccl, explains=False)
        asked = FAULTS[fault][0](session, plain.question)
        largest = max(factors)
        for size in factors:
            healthy_s, slow_s = (_time_s(session, each, size) for each in (plain.question, asked.question))
            factors[size] = slow_s / healthy_s * asked.longer(size, largest)
        full = [factor for size, factor in factors.items() if 8 * size >= largest]
        if statistics.median(full) < _LEAST:
            raise CannotHaveItError
    return [(size, time_s * factors[size] * rng.lognormvariate(0.0, NOISE)) for size, time_s in run.times]


def _time_s(session: Session, question: CollectiveQuestion, size: int) -> float:
    return session.time_s(replace(question, size_bytes=float(size)))


def main() -> int:
    """Count, and print what was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faulty.run", description=__doc__)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    healthy, faulty, slow, named, causes, say = 0, 0, 0, 0, 0, sys.stdout.write
    of_fault: dict[str, Counter[str]] = defaultdict(Counter)
    for found in found_faults(given.tables, given.logs, given.seed):
        if not found.fault:
            healthy += 1
            slow += found.is_slow
        else:
            faulty += 1
            place = found.rank()
            named += 0 < place <= 2
            causes += found.first_causes
            counts = of_fault[found.fault]
            counts.update(logs=1, slow=found.is_slow, named=0 < place <= 2)
        if found.is_slow != bool(found.fault) or (found.fault and not 0 < found.rank() <= 2):
            first = [f"{each.error:.2f} {each.words}" for each in found.checked.explanations[:3]]
            ratios = [f"{statistics.median(row.ratio for row in rows):.2f}" for rows in found.checked.groups]
            rank = found.rank() if found.fault else ""
            what = f"{found.machine}, {found.checked.log.n_ranks} GPUs, {found.fault or 'healthy'}"
            say(f"{what}: {found.checked.verdict} {ratios} {rank} {first}\n")
    caught = sum(counts["slow"] for counts in of_fault.values())
    say(f"healthy logs not called slow: {healthy - slow} of {healthy}\n")
    say(f"faulty logs called slow: {caught} of {faulty}; the cause among the first two: {named}\n")
    say(f"causes named by the first two: {causes / max(faulty, 1):.1f} a faulty log\n")
    for fault, counts in of_fault.items():
        say(f"  {fault}: {counts['logs']} logs, {counts['slow']} slow, {counts['named']} named\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
