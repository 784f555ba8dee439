"""Trace the user's module in a separate process with a time limit, so that it cannot end this one (docs/torch.md).

The process starts with the first module and serves later ones that share its working directory and import path.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from simulator.console.run import environment_given
from simulator.effects import effect
from simulator.errors import InputError, TopocastError, mention, one_line, refused
from simulator.workload.network import Network
from simulator.workload.torch_import import load_torch_workload

LIMIT_S = 300.0
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from simulator.workload.torch_import.child import serve; serve(int(sys.argv[2]))"
)


# At most one tracing process with the connection to it, by working directory and import path.
_serving: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], Connection]] = {}


def trace_apart(text: str, **sizes: Any) -> Network:
    """Return ``load_torch_workload(text, **sizes)``, run in a separate process.

    Raises what that raises, and InputError if the process ends or ``LIMIT_S`` seconds pass without an answer.
    """
    what = mention("workload", one_line(text, 80))
    effect("runs code", what)
    process, connection = _started()
    answer: Any = None
    try:
        connection.send((text, sizes))
        if connection.poll(LIMIT_S):
            answer = connection.recv()
    except (OSError, EOFError):
        status = process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        told = f"its process ended without an answer ({how}); does the module leave it?"
    except Exception as error:
        told = f"its process gave no answer that can be read ({type(error).__name__})"
    except BaseException:
        _end()
        raise
    else:
        told = f"did not end within {LIMIT_S:g} s; is there a loop without an end, or work that a build needs not?"
    if answer is None:
        _end()
        raise InputError(f"{what}: {told}")
    if isinstance(answer, TopocastError):
        raise answer
    return answer  # type: ignore[no-any-return]


def _started() -> tuple[subprocess.Popen[bytes], Connection]:
    path = sys.path if "" in sys.path else ["", *sys.path]  # consoles' scripts do not search the current folder
    key = (os.getcwd(), *path)
    if key not in _serving or _serving[key][0].poll() is not None:
        _end()
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(path), str(theirs.fileno())],
                env=environment_given(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if sys.stderr is None else None,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that its children are killed with it
            )
        _serving[key] = process, ours
    return _serving[key]


@atexit.register
def _end() -> None:
    """Kill the tracing process and all its children."""
    for process, connection in _serving.values():
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        connection.close()
    _serving.clear()


# -- in the tracing process --------------------------------------------------------


def serve(handle: int) -> None:
    """Answer questions from the connection *handle* until it closes; then exit at once, even during a trace."""
    connection = Connection(handle)
    with suppress(OSError):
        os.dup2(2, 1)
    waiting = threading.Semaphore(0)
    asked: list[tuple[str, dict[str, Any]]] = []

    def listen() -> None:
        with suppress(OSError, EOFError):
            while True:
                asked.append(connection.recv())
                waiting.release()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        waiting.acquire()
        text, sizes = asked.pop(0)
        connection.send(_answer(text, sizes))


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
