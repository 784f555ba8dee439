"""Where searches and sweeps run, and the file from which they resume."""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from simulator import __version__
from simulator.cli.options import parse_count, refuse
from simulator.effects import effect
from simulator.errors import Fault, InputError, MissingDependency, one_line
from simulator.questions.checks import From
from simulator.search.run import KeptResults, Runner, here
from simulator.user_files import read_user_file

_CONNECT_S = 10


def process_count(jobs: str | None, dask: str | None) -> int:
    """Return the number of processes that ``--jobs`` asks for, by default one a core; raises InputError."""
    refuse({"--jobs": jobs is not None and dask is not None}, "starts processes on this machine; --dask uses a cluster")
    if jobs is not None:
        return parse_count("jobs", jobs, From(1, 1024))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def runner_of(count: int, dask: str | None, stack: ExitStack) -> Runner:
    """Return a runner until *stack* closes: on the cluster *dask*, in *count* processes, or in this one for 1.

    Raises MissingDependency if Dask is needed and not installed, InputError if no cluster answers.
    """
    if dask is None and count == 1:
        return here
    submit: Callable[..., Any]
    if dask is None:
        pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        submit = pool.submit
    else:
        shown = one_line(dask, 60)
        effect("opens a connection", f"--dask {shown}")
        try:
            from distributed import Client
        except ImportError:
            raise MissingDependency("--dask needs Dask; pip install 'topocast[dask]'") from None
        try:
            client = stack.enter_context(Client(dask, timeout=_CONNECT_S, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"--dask {shown}: no cluster answers: {one_line(error, 120)}") from None
        submit = partial(client.submit, pure=False)

    def submitted(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        futures = [submit(function, *job) for job in jobs]
        return (future.result() for future in futures)

    return submitted


_MAX_BYTES = 1 << 28
_NO_LINE = "is not a line of a search or sweep; --resume names a file of its own"


def kept_in(path: str | None, of: str, what: str, stack: ExitStack) -> KeptResults:
    """Return the results in the file *path* of the search or sweep (*what*) with the fingerprint *of*.

    New ones are appended until *stack* closes.  A last line cut off by an interrupt is dropped, and its result found
    again; a modified line is refused because of its checksum.

    Raises InputError if the file cannot be read or written, or belongs to another search; the file does not change
    then.
    """
    if path is None:
        return KeptResults()
    file, shown = Path(path), one_line(path)
    effect("writes a file", f"--resume {shown}")
    head = json.dumps({what: of}) + "\n"
    try:
        try:
            raw = read_user_file(file, _MAX_BYTES, shown) if file.exists() else b""
        except InputError as error:
            raise InputError(f"--resume {error}") from None
        whole = raw[: raw.rfind(b"\n") + 1]
        first, *lines = whole.decode("utf-8", "replace").splitlines() or [""]
        if not (first == head.rstrip() if whole else head.encode().startswith(raw)):
            other = f"is of another {what}, or of another version; name another file"
            raise InputError(Fault(other if isinstance(_read(first), dict) else _NO_LINE, shown, 1, 1))
        found = {}
        for number, line in enumerate(lines, start=2):
            entry = _read(line)
            if not isinstance(entry, list) or len(entry) != 3 or entry[2] != _sum(entry[0], entry[1]):
                raise InputError(Fault(_NO_LINE, shown, number, 1))
            found[str(entry[0])] = entry[1]
        stream = file.open("ab", buffering=0)  # closing it writes nothing more
        stack.callback(stream.close)
        stream.truncate(len(whole))
    except (OSError, ValueError) as error:
        raise InputError(f"--resume {shown}: {getattr(error, 'strerror', None) or 'is no path'}") from None

    def write(text: str) -> None:
        try:
            left = text.encode()
            while left:
                left = left[stream.write(left) :]
        except OSError as error:
            raise InputError(f"--resume {shown}: cannot be written: {error.strerror}") from None

    if not whole:
        write(head)
    return KeptResults(found, lambda key, result: write(json.dumps([key, result, _sum(key, result)]) + "\n"))


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _sum(key: object, found: object) -> int:
    return zlib.crc32(json.dumps([key, found]).encode())


def fingerprint(*said: str) -> str:
    """Return a hash of what was asked, as *said*, and of all that decides the answers: constants, bands, version."""
    data = [file for package in ("constants", "bands") for file in files(f"simulator.{package}").iterdir()]
    constants = [file.read_text(encoding="utf-8") for file in sorted(data, key=str) if file.name.endswith(".json")]
    text = "\0".join([__version__, *said, *constants])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
