"""Trace the user's module in a separate process with a time limit, so that it cannot end this one.

The process starts with the first module and serves later ones that share its working directory and import path.
Questions and answers are pickled messages, each preceded by its length, on two pipes.  Output of the user's code goes
to standard error, and its standard input is empty.  A crash or a timeout is reported like any other fault.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from simulator.effects import effect
from simulator.errors import InputError, TopocastError, one_line, refused
from simulator.spelling import mention
from simulator.workload.torch_import.load import load_torch_workload
from simulator.workload.torch_import.traced import TracedNetwork

LIMIT_S = 300.0
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from simulator.workload.torch_import.child import serve; serve()"
)
_LENGTH = struct.Struct(">Q")
_serving: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}  # at most one, keyed by working directory and import path


def trace_apart(text: str, **sizes: Any) -> TracedNetwork:
    """Return ``load_torch_workload(text, **sizes)``, run in a separate process.

    Raises what that raises, and InputError if the process ends or ``LIMIT_S`` seconds pass without an answer.
    """
    what = mention("workload", one_line(text, 80))
    effect("runs code", what)
    process = _process()
    try:
        answer = _asked(process, (text, sizes), what)
    except BaseException:
        _end()
        raise
    if isinstance(answer, TopocastError):
        raise answer
    return answer  # type: ignore[no-any-return]


def _process() -> subprocess.Popen[bytes]:
    path = sys.path if "" in sys.path else ["", *sys.path]  # consoles' scripts do not search the current folder
    key = (os.getcwd(), *path)
    if key not in _serving or _serving[key].poll() is not None:
        _end()
        _serving[key] = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if sys.stderr is None else None,
            start_new_session=True,  # so that its children are killed with it
        )
    return _serving[key]


@atexit.register
def _end() -> None:
    """Kill the tracing process and all its children."""
    for process in _serving.values():
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
    _serving.clear()


def _asked(process: subprocess.Popen[bytes], question: tuple[str, Mapping[str, Any]], what: str) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    until_s = time.monotonic() + LIMIT_S
    try:
        _send(process.stdin, question)
        (length,) = _LENGTH.unpack(_received(process, _LENGTH.size, until_s))
        return pickle.loads(_received(process, length, until_s))
    except TimeoutError:
        raise InputError(
            f"{what}: did not end within {LIMIT_S:g} s; is there a loop without an end, or work that a build needs not?"
        ) from None
    except (OSError, EOFError):
        status = process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise InputError(f"{what}: its process ended without an answer ({how}); does the module leave it?") from None
    except Exception as error:
        raise InputError(f"{what}: its process gave no answer that can be read ({type(error).__name__})") from None


def _send(pipe: BinaryIO | Any, message: object) -> None:
    raw = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(raw)) + raw)
    pipe.flush()


def _received(process: subprocess.Popen[bytes], length: int, until_s: float) -> bytes:
    """Return the next *length* bytes of the process's output; raises TimeoutError, or EOFError if it ended."""
    assert process.stdout is not None
    file, found = process.stdout.fileno(), bytearray()
    while len(found) < length:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([file], [], [], left_s)[0]:
            raise TimeoutError
        piece = os.read(file, min(length - len(found), 1 << 20))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


# -- in the tracing process --------------------------------------------------------


def serve() -> None:
    """Answer questions from standard input until it closes; then exit at once, even during a trace."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with suppress(OSError):
        os.dup2(2, 1)
    waiting = threading.Semaphore(0)
    asked: list[tuple[str, dict[str, Any]]] = []

    def listen() -> None:
        while True:
            head = questions.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                os._exit(0)
            asked.append(pickle.loads(questions.read(_LENGTH.unpack(head)[0])))
            waiting.release()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        waiting.acquire()
        text, sizes = asked.pop(0)
        _send(answers, _answer(text, sizes))


def _answer(text: str, sizes: dict[str, Any]) -> object:
    try:
        return load_torch_workload(text, **sizes)
    except TopocastError as error:
        return error
    except BaseException as error:  # user code may raise anything, even an exception that cannot be printed
        try:
            said = one_line(error, 200)
        except BaseException as other:
            said = f"which cannot be printed: {type(other).__name__}"
        return refused("workload", f"raised {one_line(type(error).__name__, 60)}: {said}", one_line(text, 80))
