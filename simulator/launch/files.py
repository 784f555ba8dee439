"""Files that a launch line names, on disk or written by its script (``cat > ds.json <<EOF``): :class:`Files`."""

from __future__ import annotations

from collections.abc import Mapping
from os.path import exists, normpath
from pathlib import Path

from simulator.spelling import mention
from simulator.topology.json_source import parse_json, read_json
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml
from simulator.user_files import read_user_file


class Files:
    """The files of the script *script*, which has *written* some: by path, their line in the script and their text."""

    def __init__(self, script: str, written: Mapping[str, tuple[int, str]]) -> None:
        self._script = script
        self._written = {normpath(path): found for path, found in written.items()}

    def has(self, path: str) -> bool:
        """Return whether there is a file *path*."""
        return normpath(path) in self._written or exists(path)

    def read(self, path: str, most: int, *, needed: str, usual: str) -> bytes:
        """Return the content of *path*; raises InputError as :func:`read_user_file` does."""
        found = self._written.get(normpath(path))
        return found[1].encode() if found else read_user_file(path, most, needed=needed, usual=usual)

    def json(self, path: str, kind: str) -> YamlSource:
        """Return the document *path*; raises InputError as :func:`read_json` does."""
        name, text = self._placed(path)
        return read_json(Path(path), kind) if text is None else parse_json(text, name, kind)

    def yaml(self, path: str, needs: str) -> YamlSource:
        """Return the document *path*; raises InputError as :func:`read_yaml` does."""
        name, text = self._placed(path)
        return read_yaml(Path(path), needs=needs) if text is None else parse_yaml(text, name, needs=needs)

    def _placed(self, path: str) -> tuple[str, bytes | None]:
        """Return the text that the script writes to *path* in its lines of the script, and the name of what has it."""
        found = self._written.get(normpath(path))
        if found is None:
            return path, None
        line, text = found
        if self._script == mention("launch"):
            return path, text.encode()
        return self._script, ("\n" * (line - 1) + text).encode()
