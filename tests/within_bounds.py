"""Run commands, each in a process of its own with a limit of its time, and tell what each used; imports are shared.

``python -m tests.within_bounds SECONDS`` reads a list of commands as JSON from standard input, each a list of words
that begins with the program, and writes a list of results.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from simulator.cli import run
from simulator.console.run import run_app
from tests.calls import CountedCalls
from validate.cli import app


def _resident_kilobytes(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0])


def _used(words: list[str]) -> dict[str, Any]:
    """Run *words* and return its status and output, its function calls, and the kB that it took at most."""
    out, err = io.StringIO(), io.StringIO()
    before_kB = _resident_kilobytes("VmRSS")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), CountedCalls() as calls:
        status = run(words[1:]) if words[0] == "simulate" else run_app(app, "validate", words[1:])
    kB = _resident_kilobytes("VmHWM") - before_kB
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "calls": calls.so_far, "kB": kB}


def _apart(words: list[str], seconds: int) -> dict[str, Any]:
    """Return the result of *words* in a process of its own; only a status below 0, the signal, if that was ended."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        with os.fdopen(write, "w", encoding="utf-8") as to:
            json.dump(_used(words), to)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as of:
        text = of.read()
    _, ended = os.waitpid(process, 0)
    return json.loads(text) if text else {"status": -os.waitstatus_to_exitcode(ended) or -1}


# What commands import when they run, all processes then have.
_FIRST = (
    ("simulate", "--topology", "4gpu-pcie", "--strategy", "ring,nccl"),
    ("simulate", "--topology", "t4", "--workload", "mlp", "--batch", "2"),
    ("validate", "compare", "no-such-folder"),
    ("validate", "score", "no-such.csv"),
)


if __name__ == "__main__":
    limit_s = int(sys.argv[1])
    for first in _FIRST:
        _used([*first])
    json.dump([_apart(words, limit_s) for words in json.load(sys.stdin)], sys.stdout)
