"""What a command does besides its answer: files, code, connections; of other people's data only if trusted."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

from simulator.errors import Fault, InputError, word_of

Effect = Literal["writes a file", "runs code", "opens a connection"]


class _Reading(NamedTuple):
    """A data file without trust: the files that the user named, and the effects refused so far."""

    outputs: frozenset[str]
    refused: list[Fault]


_TRUSTED = "trusted"
_state: ContextVar[_Reading | str | None] = ContextVar("effects", default=None)  # None: the user's own words


@contextmanager
def data_file(*, trusted: bool, outputs: Collection[str] = ()) -> Iterator[list[Fault]]:
    """Refuse effects within, but *outputs* (absolute paths), unless *trusted* or in a trusted file; yields refusals."""
    outer = _state.get()
    if isinstance(outer, _Reading):
        yield outer.refused
        return
    reading = None if trusted or outer == _TRUSTED else _Reading(frozenset(outputs), [])
    token = _state.set(reading or _TRUSTED)
    try:
        yield reading.refused if reading is not None else []
    finally:
        _state.reset(token)


def has_effects() -> bool:
    """Return whether effects are allowed here."""
    return not isinstance(_state.get(), _Reading)


def effect(does: Effect, what: str, path: str | None = None) -> None:
    """Raise InputError if *what*, which *does* something (to the file *path*), is asked for by a file without trust."""
    reading = _state.get()
    if isinstance(reading, _Reading) and (path is None or os.path.abspath(path) not in reading.outputs):
        fault = Fault(f"{what}: {does}, which a file may ask for only with {word_of('trust_code')} on the command line")
        reading.refused.append(fault)
        raise InputError(fault)
