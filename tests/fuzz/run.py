"""Run commands on random inputs for a given time: ``python -m tests.fuzz.run --minutes 60``.

Each input follows from a number, so ``--seed`` and ``--count`` reproduce it.  Commands run one by one in a process
that is replaced when one hangs (20 s of CPU time) or takes more than 1 GiB.  Failing commands and their files are
copied to ``tests/fuzz/crashes/<kind>-<seed>``; ``tests/fuzz/test_fuzz.py`` runs everything there again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tests.fuzz.inputs import KINDS, command

CRASHES = Path(__file__).parent / "crashes"
LIMIT_S = 20.0
LIMIT_BYTES = 1 << 30


_TOO_LONG = "took more than"
_MISSED = "expected values are missed: "
_OUT_OF_MEMORY = re.compile(r"^\w+: out of memory: .*(too little(; what would fit: .*)?| lacks .*)\n\Z", re.MULTILINE)


class _TooLongError(BaseException):
    """The command exceeded its time limit."""


def _stop(_: int, __: FrameType | None) -> None:
    raise _TooLongError


def fault_of(words: list[str]) -> str:
    """Return the fault in how the command *words* ends; empty where there is none."""
    from simulator.cli import run as simulate
    from simulator.console.run import run_app
    from validate.cli import app as validate

    out, err = io.StringIO(), io.StringIO()
    commands = {"simulator": simulate, "validate": lambda given: run_app(validate, "validate", given)}
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _no_input():
            status = commands[words[0]](words[1:])
    except _TooLongError:
        return f"{_TOO_LONG} {LIMIT_S:g} s"
    except BaseException as error:  # no exception may escape from a command
        return f"raised {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    said = out.getvalue() + err.getvalue()
    too_large = status == 1 and _OUT_OF_MEMORY.search(err.getvalue())  # on the simulated device: a valid answer
    missed = status == 1 and words[1:2] == ["scenario"] and _MISSED in err.getvalue()  # a valid answer too
    slow = status == 3 and words[:2] == ["validate", "check"]  # a slow log, which is a valid answer
    if status not in (0, 2) and not too_large and not missed and not slow:
        return f"ended with {status}: {err.getvalue()[-300:]}"
    if status == 2 and not err.getvalue().strip():
        return "ended with 2 and said nothing"
    if status == 0 and not out.getvalue().strip() and "--out" not in words:
        return "ended with 0 and said nothing"
    strange = sorted({c for c in said if not c.isprintable() and c not in "\n\t"})
    if strange:
        return f"printed {strange}"
    longest = max((len(line) for line in err.getvalue().splitlines()), default=0)
    return f"said a line of {longest} characters" if longest > 1_500 else ""


@contextlib.contextmanager
def _no_input():  # type: ignore[no-untyped-def]
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(b""))
    try:
        yield
    finally:
        sys.stdin = before


def _serve(pipe) -> None:  # type: ignore[no-untyped-def]
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    while True:
        words, folder = pipe.recv()
        os.chdir(folder)
        pipe.send(fault_of(words))
        os.chdir("/")


class _Runner:
    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process = None

    def fault(self, words: list[str], folder: str) -> str:
        if self._process is None or not self._process.is_alive():
            self._pipe, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send((words, folder))
        try:
            if self._pipe.poll(60 * LIMIT_S):
                return self._pipe.recv()
            found = "hangs"
        except EOFError:
            found = "ended the process"
        self._process.kill()
        self._process.join()
        return found


def main() -> int:
    """Run the fuzzer; return 1 where a command failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=1 << 62, help="of inputs, at most")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--only", choices=list(KINDS), action="append", help="this kind of inputs; repeatable")
    given = parser.parse_args()
    kinds = given.only or list(KINDS)
    runner, began_s, n_failed, n = _Runner(), time.monotonic(), 0, 0
    while n < given.count and time.monotonic() - began_s < 60 * given.minutes:
        seed = given.seed + n
        n += 1
        with tempfile.TemporaryDirectory() as folder:
            words = command(seed, Path(folder), kinds)
            before = set(Path(folder).iterdir())
            fault = runner.fault(words, folder)
            if fault.startswith(_TOO_LONG):  # on a machine shared with others CPU time may double
                fault = runner.fault(words, folder)
            made = {path for path in set(Path(folder).iterdir()) - before if path.name not in " ".join(words)}
            fault = fault or (f"wrote {sorted(made)}" if made else "")
            if not fault:
                continue
            n_failed += 1
            kept = CRASHES / f"{kinds[seed % len(kinds)]}-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            words = [word.replace(folder, "{folder}") for word in words]
            (kept / "command.json").write_text(json.dumps({"words": words, "fault": fault[:500]}, indent=1) + "\n")
            print(f"{kept.name}: {fault[:300]}", flush=True)  # noqa: T201  the tool's output
    print(f"{n} inputs, {n_failed} failed, {time.monotonic() - began_s:.0f} s")  # noqa: T201  likewise
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
