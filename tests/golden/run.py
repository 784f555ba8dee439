"""Examples of the command line with their output, and a command to update them.

Each ``*.txt`` here has a command on its first line (``$ simulate ...`` or ``$ validate ...``), followed by its output
on both streams, and its exit status where that is not 0.  To accept changed outputs, run
``python -m tests.golden.run`` and read the diff.

``predicted-*.json`` hold what the program answered when the documents were made, by question.  They are change
detectors: they say that an answer is another one than before, not that either is right.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from pathlib import Path
from unittest.mock import patch

from simulator.cli import run
from simulator.console.run import run_app
from validate.cli import app

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
PROGRAMS = {"simulate": run, "validate": lambda words: run_app(app, "validate", words)}


def example_files() -> list[Path]:
    """Return the example files, sorted."""
    return sorted(FOLDER.glob("*.txt"))


def printed(file: Path) -> str:
    """Run the command on the first line of *file* in this process and return the file's expected content."""
    command = file.read_text(encoding="utf-8").splitlines()[0]
    words = shlex.split(command)[1:]
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    while words[0] not in PROGRAMS:  # environment settings before the command, as in a shell
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    output = io.StringIO()
    streams = contextlib.redirect_stdout(output), contextlib.redirect_stderr(output)
    with patch.dict(os.environ, environment, clear=True), contextlib.chdir(ROOT), streams[0], streams[1]:
        status = PROGRAMS[words[0]](words[1:])
    return f"{command}\n{output.getvalue()}" + (f"[exit {status}]\n" if status else "")


if __name__ == "__main__":
    for example in example_files():
        example.write_text(printed(example), encoding="utf-8")
