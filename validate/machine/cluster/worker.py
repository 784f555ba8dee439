"""A host of the cluster: a process in its namespace that does what the controller's lines say.

Lines are JSON, one question and one answer each.  ``start``: join the others; ``prepare``: make buffers;
``go``: do an operation at a moment of the clock that all processes of one machine share.  It ends when the
controller's end of the pipe closes.
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

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_JOIN_S = 120.0
_CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def main() -> None:
    """Serve questions until there are none."""
    # End when the controller does, however it ends.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
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
    """Settle the namespace's own TCP and join torch's process group."""
    if not _write(_CONGESTION, "cubic"):  # BBR, where the machine has that, paces by what it once measured
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
    """Run before programs of ordinary priority, where the user may; threads made from here on do too.

    A host has its processor to itself; these hosts share theirs with each other and with whatever else runs
    here.  They compute little, so going first costs others little, and a wait for the processor would be
    measured as if it were the network's.
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
