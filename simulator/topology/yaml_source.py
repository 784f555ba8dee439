"""YAML and JSON with positions: a document as plain data, with the line and column of each node."""

import gc
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, field
from simulator.user_files import read_user_file

MAX_BYTES = 2_000_000
_MAX_DEPTH = 40
_MAX_EVENTS = 100_000  # takes about a second
_NEEDS = "a topology needs schema_version, name, devices and links"
_USUAL = "a topology is a few kB"
_INSTEAD = "use a range such as gpu[0-7]"
_CONTROL = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.1, section 5.1
_TEXT = "tag:yaml.org,2002:str"
_READ_AS = {"bool": "true or false", "int": "a number", "float": "a number", "null": "nothing", "timestamp": "a date"}
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in (*_READ_AS, "str", "merge", "map", "seq")}
_LONGEST_NUMBER = 40  # characters
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _line_column(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


@dataclass(frozen=True, slots=True)
class YamlSource:
    """A parsed document: its name in messages, its data, and its node tree, which gives positions."""

    file: str
    data: Any
    root: yaml.Node | None
    _keys: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = field(default_factory=dict, repr=False, compare=False)

    def place(self, path: Sequence[str | int], *, key: bool = False) -> tuple[int, int]:
        """Return (line, column), from 1, of the value at *path* or its *key*, or of its nearest ancestor."""
        node = self.root
        mark = node.start_mark if node is not None else None
        for depth, step in enumerate(path):
            last = depth == len(path) - 1
            if isinstance(node, yaml.MappingNode):
                keys = self._keys.get(id(node))
                if keys is None:  # of duplicate keys, the first counts
                    keys = self._keys[id(node)] = {str(k.value): (k, v) for k, v in reversed(node.value)}
                found = keys.get(str(step))
                if found is None:
                    continue  # a step that pydantic adds, such as the tag of a union
                mark = found[0].start_mark if key and last else found[1].start_mark
                node = found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                mark = node.start_mark
            else:
                break
        return _line_column(mark)

    def fault(self, path: Sequence[str | int], message: str, *, key: bool = False) -> Fault:
        """Return a fault at *path* in this document."""
        return Fault(message, self.file, *self.place(path, key=key))

    def part(self, path: Sequence[str | int], data: Any) -> "YamlSource":
        """Return the part at *path*, which holds *data*, as a document of its own, with its places in this one."""
        node = self.root
        for step in path:
            if isinstance(node, yaml.MappingNode):
                node = next((value for key, value in node.value if key.value == step), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
        return YamlSource(self.file, data, node)


def read_yaml(path: Path, shown_as: str | None = None, *, needs: str = _NEEDS, instead: str = _INSTEAD) -> YamlSource:
    """Read and parse *path*, *shown_as* in messages that tell what it *needs* and *instead* of what; or InputError."""
    name = shown_as or str(path)
    raw = read_user_file(path, MAX_BYTES, name, needed="a YAML file", usual=_USUAL)
    return parse_yaml(raw, name, needs=needs, instead=instead)


def parse_yaml(raw: bytes, name: str, *, needs: str = _NEEDS, instead: str = _INSTEAD) -> YamlSource:
    """Parse *raw* as the document called *name*; the other arguments and errors are those of :func:`read_yaml`."""
    if len(raw) > MAX_BYTES:
        raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB; {_USUAL}", name, 1, 1))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise InputError(Fault("is not UTF-8 text; a YAML file is needed", name, line, column)) from None
    if not text.strip():
        raise InputError(Fault(f"is empty; {needs}", name, 1, 1))
    strange = _CONTROL.search(text)
    if strange is not None:
        line = text.count("\n", 0, strange.start()) + 1
        column = strange.start() - text.rfind("\n", 0, strange.start())
        message = f"holds the control character U+{ord(strange[0]):04X}; is this text?"
        raise InputError(Fault(message, name, line, column))
    with uncollected():
        return _parsed(text, name, instead)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection, whose repeated passes over a growing tree quadruple the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parsed(text: str, name: str, instead: str) -> YamlSource:
    try:
        _refuse_size(text, name)
        loader = _Loader(text)
        try:
            root, data = loader.get_single_node(), None
            if root is not None:
                if faults := _structure_faults(loader, root, name, instead):
                    raise InputError(faults)
                data = _data(loader, root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = _line_column(mark) if mark else (0, 0)
        if "maximum nesting depth" in (error.problem or ""):  # libyaml's own limit, of 1,000 brackets ahead
            raise InputError(Fault(f"is nested deeper than {_MAX_DEPTH} levels", name, line, column)) from None
        problem = one_line(", ".join(filter(None, (error.context, error.problem))) or "cannot be parsed")
        lines = text.splitlines()
        written = lines[line - 1].split() if 0 < line <= len(lines) else []  # the mistake may be at the end of the file
        if len(written) > 1 and written[0].lower().startswith("gpu") and written[0][3:].isdecimal():
            problem += "; the rows of a matrix begin at one column, or write 'matrix: |2' before a header"
        raise InputError(Fault(f"is not valid YAML: {problem}", name, line, column)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = "nested too deep" if isinstance(error, RecursionError) else one_line(error)
        raise InputError(Fault(f"is not valid YAML: {problem}", name, 1, 1)) from None
    return YamlSource(name, data, root)


def _refuse_size(text: str, name: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        message = f"is nested deeper than {_MAX_DEPTH} levels"
        if number > _MAX_EVENTS:
            message = f"holds more than {_MAX_EVENTS:,} words and brackets up to here; ranges (gpu[0-7]) say it shorter"
        if number > _MAX_EVENTS or depth > _MAX_DEPTH:
            raise InputError(Fault(message, name, *_line_column(event.start_mark)))


def _structure_faults(loader: Any, root: yaml.Node, name: str, instead: str) -> list[Fault]:
    """Return duplicate and non-text keys, repeated anchors, and values, unread, that do not fit their tags."""
    found: list[tuple[yaml.Node, str]] = []
    seen: set[int] = set()
    stack: list[yaml.Node] = [root]
    while stack:
        node = stack.pop()
        if node.tag not in _PLAIN:
            found.append((node, _tag_words(node)))
        elif isinstance(node, yaml.ScalarNode):
            if (message := _value_fault(loader, node)) is not None:
                found.append((node, message))
        elif id(node) in seen:  # an alias (*name) to a mapping or list: exponential in the worst case
            found.append((node, f"anchors that repeat a mapping or a list are not supported; {instead}"))
            break
        else:
            seen.add(id(node))
            if isinstance(node, yaml.SequenceNode):
                stack.extend(node.value)
            elif isinstance(node, yaml.MappingNode):
                found += _key_faults(node)
                stack.extend(value for key, value in node.value if isinstance(key, yaml.ScalarNode))
    placed = [(_line_column(node.start_mark), message) for node, message in found]
    return [Fault(message, name, *place) for place, message in sorted(placed, key=lambda each: each[0])]


def _value_fault(loader: Any, node: yaml.ScalarNode) -> str | None:
    kind, shown = node.tag.rpartition(":")[2], f"'{one_line(node.value, 60)}'"
    if kind in ("int", "float"):
        if ":" in node.value:
            return f"{shown} is read as a number to base 60; write it in quotes if it is text"
        if len(node.value) > _LONGEST_NUMBER:
            return f"{shown} is too long: a number has at most {_LONGEST_NUMBER} characters"
    if node.tag != _TEXT:
        try:
            loader.construct_object(node)
        except (ValueError, LookupError, AttributeError):  # such as '!!bool maybe' or the date 2020-99-99
            return f"{shown} cannot be read as {_READ_AS.get(kind, kind)}; write it in quotes if it is text"
    return None


def _key_faults(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, str]]:
    """Yield each key of *node* that is no plain text or was there before, and what is wrong with it."""
    first: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            yield key, "a key must be plain text"
            continue
        shown = f"the key '{one_line(key.value, 60)}'"
        if key.tag == "tag:yaml.org,2002:merge":
            yield key, "merge keys (<<) are not supported"
        elif key.tag not in _PLAIN:
            yield key, _tag_words(key)
        elif key.tag != _TEXT and (kind := key.tag.rpartition(":")[2]) in _READ_AS:
            yield key, f"{shown} is read as {_READ_AS[kind]}; write it in quotes"
        elif key.value in first:
            yield key, f"{shown} is written twice; first in line {first[key.value].start_mark.line + 1}"
        first.setdefault(key.value, key)


def _tag_words(node: yaml.Node) -> str:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    return f"the tag {one_line(tag, 40)} is not supported; write plain text, a list or a mapping"


def _data(loader: Any, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {_data(loader, key): _data(loader, value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_data(loader, value) for value in node.value]
    return node.value if node.tag == _TEXT else loader.construct_object(node)


def read_json(path: Path, kind: str) -> YamlSource:
    """Return the mapping in the file *path*, a *kind* in messages; raises InputError as :func:`read_yaml`."""
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
    except (RecursionError, ValueError) as error:  # or a number with more digits than Python converts
        problem = "nested too deep" if isinstance(error, RecursionError) else one_line(error, 60)
        raise InputError(Fault(f"is not valid JSON: {problem}", name, 1, 1)) from None
    root = None
    with suppress(yaml.YAMLError, ValueError, RecursionError):  # valid JSON that is not valid YAML has no positions
        root = yaml.compose(text.replace("\t", " "), Loader=_Loader)
    source = YamlSource(name, data, root)
    if not isinstance(data, dict):
        raise InputError(source.fault((), f"a {kind} is a mapping: {{...}}"))
    if twice:
        told = dict.fromkeys(twice)
        raise InputError([source.fault((key,), f"'{one_line(key, 60)}' is there twice", key=True) for key in told])
    return source
