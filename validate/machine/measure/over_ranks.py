"""Run an exchange rank by rank over ``torch.distributed``: each process has the buffers of one or more stands."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.contributions import Contribution
from validate.machine.measure.exchange import Exchange, Part, Receive, parts_of, processes_of, staging_count

__all__ = ["OverRanks"]


class OverRanks:
    """What process *process* does in *exchange*, of those that :func:`processes_of` says.

    All receives and sends of a round are posted at once; what arrives is added in the order of the moves, so that
    sums of floats are the same each time.  Between stands of one process bytes are copied.  Buffers are on *device*:
    on a GPU nothing waits for the host, and NCCL, which knows no tags, pairs what two ranks send by its order; it is
    given a round as one group, where gloo takes each by itself at less cost.
    """

    def __init__(self, exchange: Exchange, process: int, dtype: Any = torch.float32, device: Any = "cpu") -> None:
        processes = processes_of(exchange)
        self._at = {stand: number for number, stands in enumerate(processes) for stand in stands}
        self._process, self._n = process, len(processes)
        self._grouped = torch.device(device).type == "cuda"
        stands = processes[process] if process < len(processes) else ()
        parts = {stand: parts_of(exchange, stand) for stand in stands}
        self._rounds: dict[int, dict[int, Part]] = {}
        for stand, own in parts.items():
            for part in own:
                self._rounds.setdefault(part.number, {})[stand] = part
        self._contributions = {stand: Contribution(exchange, stand, dtype) for stand in stands}
        self.buffers = {stand: torch.empty(exchange.n_elements, dtype=dtype, device=device) for stand in stands}
        self._staging = {
            stand: torch.empty(staging_count(parts[stand]), dtype=dtype, device=device) for stand in stands
        }

    def fill(self) -> None:
        """Write what its stands bring, before an exchange that is to be checked."""
        for stand, contribution in self._contributions.items():
            contribution.fill(self.buffers[stand])

    def is_right(self) -> bool:
        """Return whether the buffers hold what must come out; exact."""
        return all(contribution.is_right(self.buffers[stand]) for stand, contribution in self._contributions.items())

    def run(self) -> None:
        """Do this process's part of all rounds."""
        for number in sorted(self._rounds):
            self._round(self._rounds[number])

    def _round(self, step: dict[int, Part]) -> None:
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
        # Each begins with those next to it, so that nobody is sent to by all at once: connections are served in the
        # order in which they were given something.  Of the moves that two ranks have with each other, one way, both
        # know the order: that of the tags.
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
        for work in works:  # what is sent is read to its end before it may change
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
        """Return where *receive* arrives at *stand*."""
        if receive.staged is None:
            return self._sent(stand, receive.move.first, receive.move.count)
        return self._staging[stand][receive.staged : receive.staged + receive.move.count]
