"""Progress on a terminal, with the remaining time, for work of more than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

_SILENT_S = 2.0
_SHOWN_S = 0.1  # seconds between updates of the bar


class Progress:
    """Counts *total* steps, and shows a bar on standard error once two seconds have passed.

    Before that, or if standard error is not a terminal, nothing is shown or imported.
    """

    def __init__(self, total: int, what: str, *, quiet: bool = False) -> None:
        self.total = total
        self.what = what
        self.done = 0
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._next_s = 0.0
        self._timer: threading.Timer | None = None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(_SILENT_S, self._open)
            self._timer.daemon = True

    def __enter__(self) -> Progress:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._bar is not None:
                self._bar.stop()

    def advance(self, done: str = "") -> None:
        """Count one step, called *done*."""
        with self._lock:
            self.done += 1
            if self._bar is not None and time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + _SHOWN_S
                self._bar.update(
                    self._task, completed=self.done, description=f"{self.what} ({done})" if done else self.what
                )

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        columns: list[Any] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
        if self.total > 1:
            columns += [progress.MofNCompleteColumn(), progress.TimeRemainingColumn()]
        bar = progress.Progress(*columns, progress.TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        with self._lock:
            if self._timer is None:  # already left
                return
            self._task = bar.add_task(self.what, total=self.total if self.total > 1 else None, completed=self.done)
            bar.start()
            self._bar = bar
