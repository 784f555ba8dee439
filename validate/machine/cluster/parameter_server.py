"""Push and pull over TCP: every host is a worker, and some of them are servers too.

The buffer is cut into one share a server.  A worker pushes each share to its server, all at once; a server
waits until it holds the share of every worker, adds, and sends the sum to all.  What a worker and a server
of the same host exchange stays in its memory: that is what the simulator's ``parameter-server`` describes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

__all__ = ["PORT", "Servers", "shares"]

PORT = 29601
_CONNECT_S = 30.0


def shares(n_elements: int, n_servers: int) -> list[tuple[int, int]]:
    """Return where the share of each server begins and ends, in elements; they differ by one at most."""
    edges = [n_elements * j // n_servers for j in range(n_servers + 1)]
    return list(pairwise(edges))


class Servers:
    """The connections of host *rank* to all others, kept open: one of its own to each other host's server."""

    def __init__(self, rank: int, addresses: Sequence[str], port: int = PORT) -> None:
        self.rank = rank
        self._listener = socket.create_server((addresses[rank], port), backlog=len(addresses))
        self._listener.settimeout(_CONNECT_S)
        self._to: dict[int, socket.socket] = {}  # as a worker, to the server of that host
        self._from: dict[int, socket.socket] = {}  # as a server, from the worker of that host
        others = [r for r in range(len(addresses)) if r != rank]
        accepting = threading.Thread(target=self._accept, args=(len(others),), daemon=True)
        accepting.start()
        for other in others:
            self._to[other] = _connect(addresses[other], port)
            self._to[other].sendall(bytes([rank]))
        accepting.join(_CONNECT_S)
        if len(self._from) != len(others):
            raise ConnectionError("not all workers have connected to the server")
        self._pool = ThreadPoolExecutor(max_workers=max(1, 3 * len(others)), thread_name_prefix="servers")

    def _accept(self, count: int) -> None:
        for _ in range(count):
            stream, _ = self._listener.accept()
            stream.settimeout(None)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._from[stream.recv(1)[0]] = stream

    def push_pull(
        self, buffer: memoryview, element_bytes: int, n: int, n_servers: int, add: Callable[..., Any]
    ) -> None:
        """Leave the sum of all *n* hosts' buffers in *buffer*; the hosts below *n_servers* serve.

        *add* adds buffers of bytes: the first is changed, the others are added to it.
        """
        parts = shares(len(buffer) // element_bytes, n_servers)
        own = [buffer[a * element_bytes : b * element_bytes] for a, b in parts]
        waiting: list[Future[None]] = [
            self._pool.submit(_exchange, self._to[j], own[j]) for j in self._others(n) if j < n_servers
        ]
        if self.rank < n_servers:
            self._serve(own[self.rank], self._others(n), add)
        for future in waiting:
            future.result()

    def _others(self, n: int) -> list[int]:
        """Return the other hosts, the next one first: so not all begin with the same one."""
        return [(self.rank + i) % n for i in range(1, n)]

    def _serve(self, share: memoryview, workers: Sequence[int], add: Callable[..., Any]) -> None:
        received = [bytearray(len(share)) for _ in workers]
        pushes = [
            self._pool.submit(_receive, self._from[r], memoryview(into))
            for r, into in zip(workers, received, strict=True)
        ]
        for future in pushes:
            future.result()
        add(share, received)
        for future in [self._pool.submit(self._from[r].sendall, share) for r in workers]:
            future.result()

    def close(self) -> None:
        """Close all connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for stream in [self._listener, *self._to.values(), *self._from.values()]:
            stream.close()


def _exchange(stream: socket.socket, share: memoryview) -> None:
    stream.sendall(share)
    _receive(stream, share)


def _receive(stream: socket.socket, into: memoryview) -> None:
    while len(into):
        count = stream.recv_into(into, len(into), socket.MSG_WAITALL)  # one call, and not one for each packet
        if not count:
            raise ConnectionError("the other end has closed the connection")
        into = into[count:]


def _connect(address: str, port: int) -> socket.socket:
    """Return a connection to a server that may not listen yet."""
    pause = threading.Event()
    for _ in range(round(_CONNECT_S / 0.05)):
        try:
            stream = socket.create_connection((address, port), timeout=_CONNECT_S)
        except ConnectionRefusedError:
            pause.wait(0.05)
            continue
        stream.settimeout(None)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream
    raise ConnectionError(f"nothing listens at {address}")
