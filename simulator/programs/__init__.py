"""Python programs: their files, statements, what these issue, and the resulting plan."""

import re

from simulator.errors import InputError
from simulator.topology.yaml_source import MAX_BYTES
from simulator.user_files import open_user_file

_BEGINS = re.compile(rb"^[\"']?program[\"']?\s*:", re.MULTILINE)


def is_program(path: str) -> bool:
    """Return whether the YAML file at *path* has a program; False where it cannot be read."""
    try:
        with open_user_file(path) as stream:
            return _BEGINS.search(stream.read(MAX_BYTES)) is not None
    except (InputError, OSError):
        return False
