"""Examples of the command line and what they print, and how to write them anew.

Each ``*.txt`` here holds a command in its first line (``$ simulate ...`` or ``$ validate ...``), then what it
prints on both streams, then its exit status where it is not 0.  To accept a change of the
outputs: ``python -m tests.golden.run``, and read the difference.
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
    """Return the examples, sorted."""
    return sorted(FOLDER.glob("*.txt"))


def printed(file: Path) -> str:
    """Run the command in the first line of *file* and return what the file should hold."""
    command = file.read_text(encoding="utf-8").splitlines()[0]
    words = shlex.split(command)
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    while words[1] not in PROGRAMS:  # settings before the command, as in a shell
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
