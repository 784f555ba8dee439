"""Variables that the words of a command set for the program that it starts: :func:`set_by`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from simulator.launch.words import Word

_SET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BEFORE = ("-x", "-e", "--env")  # of Open MPI and docker: before NAME=value
_PAIRED = ("-genv", "-env")  # of MPICH: before NAME value


def set_by(words: Sequence[Word]) -> dict[str, Word]:
    """Return the variables that *words* set: ``env A=b``, ``mpirun -x A=b``, ``srun --export=ALL,A=b``, ``-genv A b``.

    Each is its value, at the place of its word.
    """
    found: dict[str, Word] = {}
    before, in_env = "", False
    for at, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        if before in _PAIRED and at + 1 < len(words):
            found[word.text] = words[at + 1]
        elif option == "--export" and equals:  # of Slurm: ALL,A=1,B=2
            for part in value.split(","):
                _take(found, word, part)
        elif before in _BEFORE or in_env or (option in _BEFORE and equals):
            _take(found, word, value if option in _BEFORE else word.text)
        in_env = word.text.rpartition("/")[2] == "env" or (
            in_env and (word.text.startswith("-") or _SET.fullmatch(word.text) is not None)
        )
        before = word.text
    return found


def _take(found: dict[str, Word], word: Word, text: str) -> None:
    match = _SET.fullmatch(text)
    if match is not None:
        found[match[1]] = replace(word, text=match[2])
