"""The workers of a step; an exchange within a layer is added once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.step.issue import Launch
from simulator.training.exchange import GroupExchange
from simulator.training.roles import Role
from simulator.training.worker import Worker
from simulator.workload.network import block_name


class RankRoles:
    """*workers* with their roles; *exchanges* are those within layers, by axis of the layout.

    *passes_beside* names the axis, if any, whose all-gathers and reduce-scatters in blocks overlap piece by piece with
    the product that reads or writes their data: a product starts with the rows that its rank has, and only the last
    piece of its result is scattered after it.  *blocking*: hosts wait for exchanges too.
    """

    def __init__(
        self,
        workers: Sequence[tuple[Role, Worker]],
        exchanges: Mapping[str, GroupExchange] | None = None,
        passes_beside: str = "",
        *,
        blocking: bool = False,
    ) -> None:
        self.roles = tuple(role for role, _ in workers)
        self.workers = tuple(worker for _, worker in workers)
        self._exchanges = exchanges or {}
        self._brought: dict[str, int] = {}  # the last exchange of each layer
        self._passes_beside = passes_beside
        self._blocking = blocking
        self._passing: set[int] = set()  # all-gathers that overlap with the product that reads them
        self._before: list[int] | None = None  # dependencies of the last operator issued, if it was a product

    @property
    def last(self) -> list[int]:
        """The last activity of each device."""
        return [number for worker in self.workers for number in worker.last]

    def go_on(self, activities: Mapping[str, int]) -> None:
        """Continue after *activities*, by stream, which stand for skipped work."""
        for worker in self.workers:
            worker.go_on(activities)

    def passes(self) -> list[tuple[Launch, ...]]:
        """Return the issues of all roles before the update, as one tuple of equivalent issues per position."""
        return list(zip(*([i for i in role.issues if i.part != "update"] for role in self.roles), strict=True))

    def issue(self, same: Sequence[Launch], *, after: Sequence[int] = (), micro_batch: int = 0) -> list[int]:
        """Add equivalent issues, one for each role; return each role's final activity."""
        if same[0].adds and not micro_batch:
            return self.last
        needed = [self._brought[layer] for layer in same[0].needs if layer in self._brought]
        sent = same[0].sent
        if sent is None:
            return self._computed(same, after, needed, micro_batch)
        waited = (*after, *needed)
        launched = [
            number
            for worker, issue in zip(self.workers, same, strict=True)
            for number in worker.launch(issue, micro_batch)
        ]
        before = [*launched, *self.last, *waited, *(n for worker in self.workers for n in worker.waits_once)]
        exchange = self._exchanges[sent.axis]
        beside = sent.axis == self._passes_beside and bool(block_name(same[0].layer))
        size_bytes = float(sent.size_bytes) * exchange.sent_share(sent.copies)
        if beside and sent.op == "reduce-scatter" and self._before is not None:
            last_bytes = size_bytes / exchange.n_ranks
            before.append(exchange(sent.op, size_bytes - last_bytes, [*launched, *self._before], micro_batch))
            size_bytes = last_bytes
        number = exchange(sent.op, size_bytes, before, micro_batch)
        if beside and sent.op == "all-gather":
            self._passing.add(number)
        self._brought[same[0].layer] = number
        if self._blocking:
            for worker in self.workers:
                worker.last = (number,)
        return [number] * len(same)

    def _computed(
        self, same: Sequence[Launch], after: Sequence[int], needed: Sequence[int], micro_batch: int
    ) -> list[int]:
        """Add one computation for each role, after the exchanges in *needed* or during overlapping ones."""
        is_product = "gemm" in same[0].work.kinds
        beside = [number for number in needed if is_product and number in self._passing]
        waited = [*after, *(number for number in needed if number not in beside)] if needed else after
        before = [*self.last, *waited]
        found = [
            worker.issue(issue, after=waited, micro_batch=micro_batch)
            for worker, issue in zip(self.workers, same, strict=True)
        ]
        for worker in self.workers if beside else ():
            worker.waits_once = tuple(beside)
        self._before = [*before, *beside] if is_product else None
        return found

    def update(self, after: Sequence[int], micro_batch: int, share: float = 1.0) -> None:
        """Add the update of each role after *after*, with *share* of its time on the device."""
        for role, worker in zip(self.roles, self.workers, strict=True):
            for issue in role.issues:
                if issue.part == "update":
                    worker.issue(issue, after=after, micro_batch=micro_batch, share=share)
