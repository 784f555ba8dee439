"""A host of the cluster: a process in its namespace that follows the controller's requests.

Requests and answers are JSON, one per line.  ``start`` joins the other hosts, ``prepare`` allocates buffers, and
``go`` runs an operation at a given time of the monotonic clock, which all processes of one machine share.  The
process ends when the controller closes the pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_JOIN_S = 120.0
_CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def main() -> None:
    """Answer requests until the input ends."""
    # Die with the controller, however it ends.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    host: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if question["do"] == "start":
                host = _join(question)
                answer: dict[str, Any] = {"versions": _versions()}
            else:
                answer = _answer(host, question)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _join(question: dict[str, Any]) -> Any:
    """Configure TCP in this namespace and join torch's process group."""
    if not _write(_CONGESTION, "cubic"):  # BBR, the default of some machines, paces by earlier measurements
        _write(_CONGESTION, "reno")
    _write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")
    os.environ["GLOO_SOCKET_IFNAME"] = question["interface"]
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    _go_first()
    rank, addresses = question["rank"], question["addresses"]
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{addresses[0]}:{question['port']}",
        rank=rank,
        world_size=len(addresses),
        timeout=timedelta(seconds=_JOIN_S),
    )
    from validate.machine.cluster.operations import Operations

    return Operations(rank, addresses, question["node_counts"])


def _go_first() -> None:
    """Run this process, and threads started from now on, at real-time priority where the user may.

    A real host has its processor to itself; these hosts share theirs with each other and with other programs.  Waiting
    for a processor would be measured as network time.  The hosts compute little, so they delay other programs little.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def _answer(host: Any, question: dict[str, Any]) -> dict[str, Any]:
    n, size_bytes = question["nodes"], question["bytes"]
    if question["do"] == "prepare":
        host.prepare(question["strategy"], n, size_bytes, question["exchange"])
        return {}
    strategy = question["strategy"]
    time.sleep(max(0.0, question["at"] - time.monotonic()))
    begin = time.monotonic()
    if strategy == "probe":
        host.stream(n, size_bytes)
        return {"begin": begin, "end": time.monotonic()}
    host.run()
    end = time.monotonic()
    right = host.is_right()
    host.fill()
    return {"begin": begin, "end": end, "right": right}


def _versions() -> dict[str, str]:
    import torch

    return {
        "torch": torch.__version__,
        "congestion_control": _read(_CONGESTION),
        "priority": "real time" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary",
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _write(path: str, value: str) -> bool:
    try:
        Path(path).write_text(value, encoding="ascii")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
