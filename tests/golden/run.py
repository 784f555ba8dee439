"""Examples of the command line with their output, and a command to update them.

Each ``*.txt`` here has a command on its first line (``$ simulate ...`` or ``$ validate ...``), followed by its output
on both streams, and its exit status where that is not 0.  To accept changed outputs, run
``python -m tests.golden.run`` and read the diff.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = {"simulate": "simulator.cli", "validate": "validate"}


def example_files() -> list[Path]:
    """Return the example files, sorted."""
    return sorted(FOLDER.glob("*.txt"))


def printed(file: Path) -> str:
    """Run the command on the first line of *file* and return the file's expected content."""
    command = file.read_text(encoding="utf-8").splitlines()[0]
    words = shlex.split(command)
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    while words[1] not in PROGRAMS:  # environment settings before the command, as in a shell
        name, _, value = words.pop(1).partition("=")
        environment[name] = value
    done = subprocess.run(
        [sys.executable, "-m", PROGRAMS[words[1]], *words[2:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=FOLDER.parent.parent,
        text=True,
        timeout=600,
        check=False,
    )
    status = f"[exit {done.returncode}]\n" if done.returncode else ""
    return f"{command}\n{done.stdout}{status}"


if __name__ == "__main__":
    for example in example_files():
        example.write_text(printed(example), encoding="utf-8")
