"""JSON files from other tools, with the position of every key: :func:`read_json`."""

from __future__ import annotations

import json
from pathlib import Path

from simulator.errors import Fault, InputError, one_line
from simulator.topology.yaml_source import MAX_BYTES, YamlSource, node_tree
from simulator.user_files import read_user_file


def read_json(path: Path, kind: str) -> YamlSource:
    """Return the mapping in the file *path*; *kind* names the file's kind in messages (``config.json``).

    Raises InputError if the file cannot be read, is larger than ``MAX_BYTES``, is not JSON, is not a mapping, or has a
    duplicate key.
    """
    return parse_json(read_user_file(path, MAX_BYTES, str(path), usual=f"a {kind} is a few kB"), str(path), kind)


def parse_json(raw: bytes, name: str, kind: str) -> YamlSource:
    """Parse *raw* as the document called *name*; the other argument and errors are those of :func:`read_json`."""
    twice: list[str] = []

    def mapping(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                twice.append(key)
            found[key] = value
        return found

    try:
        text = raw.decode("utf-8-sig")
        data = json.loads(text, object_pairs_hook=mapping)
    except UnicodeDecodeError as error:
        raise InputError(Fault("is not UTF-8 text", name, raw.count(b"\n", 0, error.start) + 1, 1)) from None
    except json.JSONDecodeError as error:
        raise InputError(Fault(f"is not valid JSON: {one_line(error.msg)}", name, error.lineno, error.colno)) from None
    except RecursionError:
        raise InputError(Fault("is not valid JSON: nested too deep", name, 1, 1)) from None
    except ValueError as error:  # a number with more digits than Python converts
        raise InputError(Fault(f"is not valid JSON: {one_line(error, 60)}", name, 1, 1)) from None
    source = YamlSource(name, data, node_tree(text))
    if not isinstance(data, dict):
        raise InputError(source.fault((), f"a {kind} is a mapping: {{...}}"))
    if twice:
        told = dict.fromkeys(twice)
        raise InputError([source.fault((key,), f"'{one_line(key, 60)}' is there twice", key=True) for key in told])
    return source
