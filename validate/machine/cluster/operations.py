"""What a host runs: torch's collectives over gloo, push and pull, and a plain stream as a probe.

Runs in a host's namespace, with torch.  Each operation is prepared (buffers), done once for each repetition,
and its result is checked against the sum that must come out.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.cluster.parameter_server import Servers

__all__ = ["Operations"]

_PROBE_PORT = 29602
_ELEMENT_BYTES = 4  # fp32, as gradients are


class Operations:
    """The operations of host *rank* among *addresses*; ``groups`` of the first n hosts for each n that is asked."""

    def __init__(self, rank: int, addresses: list[str], node_counts: list[int]) -> None:
        self.rank = rank
        self._addresses = addresses
        self._groups: dict[int, Any] = {n: dist.new_group(list(range(n))) for n in node_counts}
        self._servers = Servers(rank, addresses)
        self._probe = socket.create_server((addresses[rank], _PROBE_PORT))
        self._tensor = torch.empty(0)
        self._bytes = bytearray()

    def prepare(self, n: int, size_bytes: int) -> None:
        """Make the buffer; what it holds is filled in before each repetition."""
        if self.rank < n:
            self._bytes = bytearray(size_bytes)
            self._tensor = torch.frombuffer(self._bytes, dtype=torch.float32)
            self.fill()

    def fill(self) -> None:
        """Fill the buffer with what this host contributes."""
        self._tensor.fill_(float(self.rank + 1))

    def run(self, strategy: str, n: int, n_servers: int) -> None:
        """Do the operation once; the hosts from *n* on have no part in it."""
        if self.rank >= n:
            return
        if strategy == "ring":
            dist.all_reduce(self._tensor, group=self._groups[n])
        elif strategy == "broadcast":
            dist.broadcast(self._tensor, src=0, group=self._groups[n])
        else:
            self._servers.push_pull(memoryview(self._bytes), _ELEMENT_BYTES, n, n_servers, _add)

    def right(self, strategy: str, n: int) -> bool:
        """Whether the buffer holds what the operation must leave there."""
        expected = 1.0 if strategy == "broadcast" else n * (n + 1) / 2
        return self.rank >= n or bool((self._tensor == expected).all())

    def stream(self, n: int, size_bytes: int) -> None:
        """Send so many bytes to the next host while those of the previous one arrive, over plain TCP."""
        if self.rank >= n:
            return
        sending = threading.Thread(target=self._send, args=((self.rank + 1) % n, size_bytes), daemon=True)
        sending.start()
        incoming, _ = self._probe.accept()
        with incoming:
            left = size_bytes
            into = bytearray(1 << 18)
            while left:
                count = incoming.recv_into(into, min(left, len(into)))
                if not count:
                    raise ConnectionError("the probe's connection has closed")
                left -= count
        sending.join()

    def _send(self, to: int, size_bytes: int) -> None:
        piece = bytes(1 << 18)
        with socket.create_connection((self._addresses[to], _PROBE_PORT)) as stream:
            for start in range(0, size_bytes, len(piece)):
                stream.sendall(piece[: min(len(piece), size_bytes - start)])


def _add(total: memoryview, parts: list[bytearray]) -> None:
    into = torch.frombuffer(total, dtype=torch.float32)
    for part in parts:
        into += torch.frombuffer(part, dtype=torch.float32)
