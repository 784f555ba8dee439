"""What a host runs: a strategy send by send, torch's own collectives, or a plain TCP stream as a probe.

A process with torch enters a host's namespace (:func:`begin`) and follows the controller: ``start`` makes the groups,
``prepare`` allocates buffers once, ``go`` runs an operation at a time of the shared clock, and checks its sum.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.cluster.network import HOST_INTERFACE, RunNames
from validate.machine.measure.exchange import OverRanks, read_exchange

_PROBE_PORT = 29602
_ELEMENT_BYTES = 4  # fp32, as gradients are
_PR_SET_PDEATHSIG, _CLONE_NEWNET = 1, 0x40000000  # linux/prctl.h, linux/sched.h
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


class _ByTorch:
    """torch's all-reduce, or its broadcast from host 0, among the *n* hosts of *group*, as :class:`OverRanks`."""

    def __init__(self, name: str, rank: int, n: int, group: Any, size_bytes: int) -> None:
        self._wanted = 1.0 if name == "broadcast" else n * (n + 1) / 2
        self._tensor = torch.empty(size_bytes // _ELEMENT_BYTES)
        way = partial(dist.broadcast, src=0) if name == "broadcast" else dist.all_reduce
        self.run = partial(way, self._tensor, group=group)
        self.fill = partial(self._tensor.fill_, float(rank + 1))

    def is_right(self) -> bool:
        return bool((self._tensor == self._wanted).all())


class Operations:
    """The operations of host *rank* among *addresses*, with a process group of the first n hosts for each count n."""

    def __init__(self, rank: int, addresses: list[str], node_counts: list[int]) -> None:
        self.rank = rank
        self._addresses = addresses
        self._groups: dict[int, Any] = {n: dist.new_group(list(range(n))) for n in node_counts}
        self._probe = socket.create_server((addresses[rank], _PROBE_PORT))
        self._operation: _ByTorch | OverRanks | None = None  # None: it takes no part

    def prepare(self, strategy: str, n: int, size_bytes: int, exchange: Mapping[str, Any] | None) -> None:
        """Fill the buffers of an *exchange* of the first *n* hosts, or of torch's own *strategy* if None."""
        self._operation = None
        if self.rank >= n:
            return
        if exchange is None:
            self._operation = _ByTorch(strategy, self.rank, n, self._groups[n], size_bytes)
        else:
            self._operation = OverRanks(read_exchange(exchange), self.rank)
        self._operation.fill()

    def run(self) -> tuple[float, bool]:
        """Run the prepared operation once, then refill its buffers; return its end and whether the result is right."""
        if self._operation is None:
            return time.monotonic(), True
        self._operation.run()
        ended_s, right = time.monotonic(), self._operation.is_right()
        self._operation.fill()
        return ended_s, right

    def stream(self, n: int, size_bytes: int) -> None:
        """Send *size_bytes* to the next of *n* hosts, receiving as many; raises ConnectionError if closed early."""
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


# -- what the controller asks of a host's process: functions of its rank, the number of hosts, and more ----------------

_hosts: list[Operations] = []  # the one of this process


def begin(names: RunNames, rank: int) -> None:
    """Enter the namespace of host *rank* with this process, and configure TCP there; raises OSError.

    It dies with the controller; what libraries print is dropped.  It runs at real-time priority where the user may: a
    real host has its processor to itself, and waiting for others would be measured as network time.
    """
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # it has ended meanwhile
        os._exit(1)
    with open(f"/var/run/netns/{names.host(rank)}", encoding="ascii") as namespace:
        if system.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1", encoding="ascii")
    for control in ("cubic", "reno"):  # BBR, the default of some machines, paces by earlier measurements
        with contextlib.suppress(OSError):
            _CONGESTION.write_text(control, encoding="ascii")
            break
    os.environ["GLOO_SOCKET_IFNAME"] = HOST_INTERFACE
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def start(rank: int, _: int, addresses: list[str], node_counts: list[int]) -> dict[str, str]:
    """Make the groups of this host among *addresses*, and return what there is: software and settings by name."""
    torch.set_num_threads(1)  # hosts share this machine's cores
    _hosts.append(Operations(rank, addresses, node_counts))
    control = ""
    with contextlib.suppress(OSError):
        control = _CONGESTION.read_text(encoding="ascii").strip()
    priority = "real time" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary"
    return {"torch": str(torch.__version__), "congestion_control": control, "priority": priority}


def prepare(_: int, __: int, case: tuple[str, int, int], exchange: Mapping[str, Any] | None) -> None:
    """Prepare a *case*: its strategy, its number of hosts and its bytes; as :meth:`Operations.prepare`."""
    _hosts[0].prepare(*case, exchange)


def go(_: int, __: int, case: tuple[str, int, int], at_s: float) -> tuple[float, float, bool]:
    """Run *case* once, from the time *at_s* on; return when it began and ended, and whether the result is right."""
    strategy, n, size_bytes = case
    time.sleep(max(0.0, at_s - time.monotonic()))
    began_s = time.monotonic()
    if strategy != "probe":
        return began_s, *_hosts[0].run()
    _hosts[0].stream(n, size_bytes)
    return began_s, time.monotonic(), True
