"""Runners for the jobs of a search: processes of this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any

from simulator.effects import effect
from simulator.errors import InputError, MissingDependency, one_line
from simulator.search.run import Runner, here

_CONNECT_S = 10


def process_runner(count: int, stack: ExitStack) -> Runner:
    """Return a runner with *count* processes until *stack* closes, or this process alone for a count of 1."""
    if count == 1:
        return here
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)

    def run(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        futures = [pool.submit(function, *job) for job in jobs]
        return (future.result() for future in futures)

    return run


def dask_runner(address: str, stack: ExitStack) -> Runner:
    """Return a runner on the Dask cluster at *address* until *stack* closes.

    Raises MissingDependency if Dask is not installed, InputError if no cluster answers.
    """
    effect("opens a connection", f"--dask {one_line(address, 60)}")
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependency("--dask needs Dask; pip install 'topocast[dask]'") from None
    try:
        client = stack.enter_context(Client(address, timeout=_CONNECT_S, set_as_default=False))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--dask {one_line(address, 60)}: no cluster answers: {one_line(error, 120)}") from None

    def run(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        futures = [client.submit(function, *job, pure=False) for job in jobs]
        return (future.result() for future in futures)

    return run
