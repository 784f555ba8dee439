"""Progress on a terminal, with the time left, for what takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

__all__ = ["Progress"]

_SILENT_S = 2.0


class Progress:
    """Counts *total* steps; shows a bar on standard error once two seconds have passed.

    Nothing is shown, and nothing imported, before that, or where standard error is no
    terminal.
    """

    def __init__(self, total: int, what: str, *, quiet: bool = False) -> None:
        self.total = total
        self.what = what
        self.done = 0
        self._shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._start_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, doing: str = "") -> None:
        """One step is done; *doing* says what comes next."""
        self.done += 1
        if not self._shown:
            return
        if self._bar is None and self.done < self.total and time.monotonic() - self._start_s > _SILENT_S:
            self._open()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=f"{self.what} {doing}".strip())

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self.what, total=self.total)
        self._bar.start()
