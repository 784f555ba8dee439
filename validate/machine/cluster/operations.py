"""What a host runs: a strategy send by send, torch's own collectives, or a plain TCP stream as a probe.

Runs in a host's namespace, with torch.  Each operation allocates its buffers once, runs once per repetition, and
checks its result against the expected sum.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist

from validate.machine.measure.exchange import read_exchange
from validate.machine.measure.over_ranks import OverRanks

_PROBE_PORT = 29602
_ELEMENT_BYTES = 4  # fp32, as gradients are


class _Operation(Protocol):
    def fill(self) -> None: ...
    def run(self) -> None: ...
    def is_right(self) -> bool: ...


class _Nothing:
    """The operation of a host that takes no part."""

    def fill(self) -> None:
        """Do nothing; there is no buffer."""

    def run(self) -> None:
        """Do nothing."""

    def is_right(self) -> bool:
        """Return True."""
        return True


class _ByTorch:
    """torch's all-reduce, or its broadcast from host 0, among the *n* hosts of *group*."""

    def __init__(self, name: str, rank: int, n: int, group: Any, size_bytes: int) -> None:
        self._name, self._rank, self._group = name, rank, group
        self._wanted = 1.0 if name == "broadcast" else n * (n + 1) / 2
        self._tensor = torch.empty(size_bytes // _ELEMENT_BYTES)

    def fill(self) -> None:
        """Fill the buffer with this host's contribution."""
        self._tensor.fill_(float(self._rank + 1))

    def run(self) -> None:
        """Run the collective once."""
        if self._name == "broadcast":
            dist.broadcast(self._tensor, src=0, group=self._group)
        else:
            dist.all_reduce(self._tensor, group=self._group)

    def is_right(self) -> bool:
        """Return whether the buffer holds the expected result."""
        return bool((self._tensor == self._wanted).all())


class Operations:
    """The operations of host *rank* among *addresses*, with a process group of the first n hosts for each count n."""

    def __init__(self, rank: int, addresses: list[str], node_counts: list[int]) -> None:
        self.rank = rank
        self._addresses = addresses
        self._groups: dict[int, Any] = {n: dist.new_group(list(range(n))) for n in node_counts}
        self._probe = socket.create_server((addresses[rank], _PROBE_PORT))
        self._operation: _Operation = _Nothing()

    def prepare(self, strategy: str, n: int, size_bytes: int, exchange: Mapping[str, Any] | None) -> None:
        """Allocate and fill the buffers of an operation; hosts from rank *n* on take no part.

        *exchange* lists what the hosts send and add; None selects torch's own collective *strategy*.
        """
        if self.rank >= n:
            self._operation = _Nothing()
        elif exchange is None:
            self._operation = _ByTorch(strategy, self.rank, n, self._groups[n], size_bytes)
        else:
            self._operation = OverRanks(read_exchange(exchange), self.rank)
        self.fill()

    def fill(self) -> None:
        """Fill the buffers with this host's contribution."""
        self._operation.fill()

    def run(self) -> None:
        """Run the prepared operation once."""
        self._operation.run()

    def is_right(self) -> bool:
        """Return whether the buffers hold the expected result."""
        return self._operation.is_right()

    def stream(self, n: int, size_bytes: int) -> None:
        """Send *size_bytes* to the next of *n* hosts over plain TCP while receiving as many from the previous one.

        Raises ConnectionError where the incoming connection closes early.
        """
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
