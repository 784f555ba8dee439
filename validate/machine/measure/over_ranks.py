"""Run an exchange rank by rank over ``torch.distributed``; each process holds the buffers of one or more stands."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.exchange import (
    BufferExchange,
    Contribution,
    Receive,
    StandPart,
    processes_of,
    staging_count,
    stand_parts,
)


class OverRanks:
    """The part of process *process* in *exchange*, with the division of stands by :func:`processes_of`.

    All sends and receives of a round are posted at once.  What arrives is added in the order of the moves, so that
    floating-point sums are reproducible.  Moves between stands of one process are plain copies.  Buffers are on
    *device*.  On a GPU the host does not wait; NCCL has no tags and pairs the sends of two ranks by their order.  A
    round is posted to NCCL as one group, and to gloo move by move, which costs less there.
    """

    def __init__(self, exchange: BufferExchange, process: int, dtype: Any = torch.float32, device: Any = "cpu") -> None:
        processes = processes_of(exchange)
        self._at = {stand: number for number, stands in enumerate(processes) for stand in stands}
        self._process, self._n = process, len(processes)
        self._grouped = torch.device(device).type == "cuda"
        stands = processes[process] if process < len(processes) else ()
        parts = {stand: stand_parts(exchange, stand) for stand in stands}
        self._rounds: dict[int, dict[int, StandPart]] = {}
        for stand, own in parts.items():
            for part in own:
                self._rounds.setdefault(part.number, {})[stand] = part
        self._contributions = {stand: Contribution(exchange, stand, dtype) for stand in stands}
        self.buffers = {stand: torch.empty(exchange.n_elements, dtype=dtype, device=device) for stand in stands}
        self._staging = {
            stand: torch.empty(staging_count(parts[stand]), dtype=dtype, device=device) for stand in stands
        }

    def fill(self) -> None:
        """Write the stands' inputs into their buffers; needed before an exchange that is checked."""
        for stand, contribution in self._contributions.items():
            contribution.fill(self.buffers[stand])

    def is_right(self) -> bool:
        """Return whether the buffers hold the exact expected result."""
        return all(contribution.is_right(self.buffers[stand]) for stand, contribution in self._contributions.items())

    def run(self) -> None:
        """Run this process's part of all rounds."""
        for number in sorted(self._rounds):
            self._round(self._rounds[number])

    def _round(self, step: dict[int, StandPart]) -> None:
        receives = [(stand, receive) for stand, part in step.items() for receive in part.receives]
        receiving = [
            (receive.tag, dist.irecv, self._here(stand, receive), self._at[receive.move.src])
            for stand, receive in receives
        ]
        sending = [
            (tag, dist.isend, self._sent(stand, move.first, move.count), self._at[move.dst])
            for stand, part in step.items()
            for move, tag in part.sends
        ]
        # Each process starts with its neighbours, so that no rank is sent to by all at once: connections are served in
        # the order of posting.  For moves in one direction between two ranks, both sides agree on the order, that of
        # the tags.
        receiving.sort(key=lambda way: ((self._process - way[3]) % self._n, way[0]))
        sending.sort(key=lambda way: ((way[3] - self._process) % self._n, way[0]))
        ways = [way for way in (*receiving, *sending) if way[3] != self._process]
        if self._grouped:
            works = dist.batch_isend_irecv([dist.P2POp(act, x, peer) for _, act, x, peer in ways]) if ways else []
        else:
            works = [act(x, peer, tag=tag) for tag, act, x, peer in ways]
        for stand, receive in receives:
            move = receive.move
            if self._at[move.src] == self._process:
                self._here(stand, receive).copy_(self._sent(move.src, move.first, move.count))
        for work in works:  # a buffer must not change before its send is complete
            work.wait()
        for stand, receive in receives:
            target = self._sent(stand, receive.move.first, receive.move.count)
            if receive.move.reduce:
                target.add_(self._here(stand, receive))
            elif receive.staged is not None:
                target.copy_(self._here(stand, receive))

    def _sent(self, stand: int, first: int, count: int) -> torch.Tensor:
        return self.buffers[stand][first : first + count]

    def _here(self, stand: int, receive: Receive) -> torch.Tensor:
        """Return the memory in which *receive* arrives at *stand*."""
        if receive.staged is None:
            return self._sent(stand, receive.move.first, receive.move.count)
        return self._staging[stand][receive.staged : receive.staged + receive.move.count]
