"""Progress appears only on a terminal, and only after a while."""

from __future__ import annotations

import io
import sys
import time

import pytest

from simulator import console as style


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [1, 3])
def test_a_long_run_shows_a_bar(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(style, "_SILENT_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with style.Progress(total, "simulating") as shown:
        deadline = time.monotonic() + 10
        while shown._bar is None and time.monotonic() < deadline:
            time.sleep(0.01)
        shown.advance("ring")
    assert "simulating" in screen.getvalue()


@pytest.mark.parametrize(("screen", "quiet"), [(Terminal(), True), (io.StringIO(), False), (Terminal(), False)])
def test_otherwise_nothing(screen: io.StringIO, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    with style.Progress(2, "simulating", quiet=quiet) as shown:
        shown.advance()
        shown.advance()
    assert screen.getvalue() == ""
