"""The workers of a step together: what one role does, all do, and what they exchange in a layer is exchanged once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.step.issue import Issue
from simulator.training.exchange import Exchange
from simulator.training.roles import Role
from simulator.training.worker import Worker

__all__ = ["Crew"]


class Crew:
    """*workers*, each with its role; *exchanges* are those within layers, by the axis of the layout."""

    def __init__(self, workers: Sequence[tuple[Role, Worker]], exchanges: Mapping[str, Exchange] | None = None) -> None:
        self.roles = tuple(role for role, _ in workers)
        self.workers = tuple(worker for _, worker in workers)
        self._exchanges = exchanges or {}
        self._brought: dict[str, int] = {}  # by layer: the exchange that it did last

    @property
    def last(self) -> list[int]:
        """The last activity of each device."""
        return [number for worker in self.workers for number in worker.last]

    def go_on(self, activities: Mapping[str, int]) -> None:
        """Go on after *activities*, by stream, that stand for what the workers have done besides."""
        for worker in self.workers:
            worker.go_on(activities)

    def passes(self) -> list[tuple[Issue, ...]]:
        """Return what all issue before the update: of each place in order, the issue of each role."""
        return list(zip(*([i for i in role.issues if i.part != "update"] for role in self.roles), strict=True))

    def issue(self, same: Sequence[Issue], *, after: Sequence[int] = (), micro_batch: int = 0) -> list[int]:
        """Add what each role issues at one place; return the activity that ends it, of each role."""
        needed = [self._brought[layer] for layer in same[0].needs if layer in self._brought]
        waited = (*after, *needed)
        sent = same[0].sent
        if sent is None:
            return [
                worker.issue(issue, after=waited, micro_batch=micro_batch)
                for worker, issue in zip(self.workers, same, strict=True)
            ]
        launched = [
            number
            for worker, issue in zip(self.workers, same, strict=True)
            for number in worker.launch(issue, micro_batch)
        ]
        before = [*launched, *self.last, *waited]
        number = self._exchanges[sent.axis](sent.op, sent.size_bytes, before, micro_batch)
        self._brought[same[0].layer] = number
        return [number] * len(same)

    def update(self, after: Sequence[int], micro_batch: int, share: float = 1.0) -> None:
        """Add the update of each role, a *share* of it on the device, not before *after*."""
        for role, worker in zip(self.roles, self.workers, strict=True):
            for issue in role.issues:
                if issue.part == "update":
                    worker.issue(issue, after=after, micro_batch=micro_batch, share=share)
