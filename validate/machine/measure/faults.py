"""Faults during a measurement: those of a single case, and those that end the run."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from validate.machine.measure.case import Unavailable

_LENGTH = 200
_OUT_OF_MEMORY = tuple(  # exported by torch itself since 2.5
    found for owner in (torch, torch.cuda) if (found := getattr(owner, "OutOfMemoryError", None)) is not None
)
# Errors after which no call works in the process (CUDA Runtime API, cudaError_t).  It recovers from others, such as
# those of a capture.  Bench.alive detects any that are missing here.
_STICKY = (
    *("illegal memory access", "illegal instruction", "illegal address", "misaligned address"),
    *("invalid program counter", "unspecified launch failure", "launch timed out", "device-side assert"),
    "hardware stack error",
    *("uncorrectable ecc", "device is lost", "fallen off the bus", "no longer accessible", "nvlink error"),
)


class Fatal(Exception):  # noqa: N818
    """Nothing more can be measured; the message says why."""


class RunStopped(BaseException):
    """A signal asked the run to end."""


def short_line(error: object) -> str:
    """Return the text of *error* on one line, cut to 200 characters."""
    return " ".join(str(error).split())[:_LENGTH]


def failure_words(error: Exception) -> str:
    """Return briefly why a case could not be measured.

    Raises Fatal where the fault is not the case's own: the device is lost or the disk is full.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Unavailable):
        return text
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Fatal("the disk is full") from error
        return f"{error.strerror or text}"
    if isinstance(error, (MemoryError, *_OUT_OF_MEMORY)) or _says(text, "out of memory", "can't allocate memory"):
        return "out of memory"
    if _says(text, *_STICKY):
        raise Fatal(f"the device is lost: {text[:_LENGTH]}") from error
    return f"{type(error).__name__}: {text}"[:_LENGTH]


def _says(text: str, *words: str) -> bool:
    return any(word in text.lower() for word in words)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise Stopped on SIGTERM or SIGHUP; SIGINT raises KeyboardInterrupt as usual."""

    def stop(number: int, frame: Any) -> None:
        del frame
        raise RunStopped(signal.Signals(number).name)

    before: dict[int, Any] = {}
    try:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None:
                before[number] = signal.signal(number, stop)
    except ValueError:  # not in the main thread, whose owner handles signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
