"""Questions about one operation in words, as in ``--workload op:linear,rows=512,inputs=1024,outputs=4096,bwd``.

After the kind and a colon come items separated by commas: the operator or the direction of a copy, a size with its
unit where one is needed, ``name=value``, and the names of flags (``cold``).  A value that fits only one field may
stand alone (``bwd`` for ``phase=bwd``).  The names are those of the fields of the question and of the operator.
``access:chase,sweep:4KiB-256MiB`` is one question for each size (:func:`swept`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from simulator.errors import InputError, mention, nearest, one_line, refused
from simulator.questions import single
from simulator.questions.single import Single
from simulator.questions.where import Where
from simulator.units import parse_quantity
from simulator.workload.operators import known_operators
from simulator.workload.parse import parse_workload

# With an example. The names stand in simulator.workload.parse too, so that a command need not import every operator.
_KINDS: Mapping[str, tuple[type[Single], str]] = {
    "op": (single.OperatorQuestion, "op:linear,rows=512,inputs=1024,outputs=4096"),
    "copy": (single.CopyQuestion, "copy:h2d,160MB"),
    "access": (single.AccessQuestion, "access:stream,64MiB,writes=1"),
    "launch": (single.LaunchQuestion, "launch:stream,op=elementwise,function=relu,elements=64"),
    "disk": (single.DiskQuestion, "disk:read_random,4KiB,threads=4"),
    "message": (single.MessageQuestion, "message:4KiB,udp"),
    "core": (single.CoreQuestion, "core:mutex"),
}
KINDS = {name: cls for name, (cls, _) in _KINDS.items()}
_ELSEWHERE = ("where", "device", "threads")  # have options of their own


def parse_question(text: str, where: Where, device: str | None = None, threads: int | None = None) -> Single:
    """Return the question *text* about *where*, and its *device* if named; raises InputError with the nearest word."""
    kind, _, rest = text.partition(":")
    cls = KINDS[kind]
    try:
        values = _read(cls, [item.strip() for item in rest.split(",")], kind)
    except ValueError as error:
        raise refused("workload", str(error), one_line(text, 60)) from None
    known = {field.name for field in fields(cls)}
    for name, value in (("device", device), ("threads", threads)):
        if value is not None and name not in known:
            example = mention("workload", _KINDS[kind][1])
            raise InputError(f"{mention(name)}: {kind} has none; write for example {example}")
        values |= {} if value is None else {name: value}
    return cls(where=where, **values)


def question_words(question: Single) -> str:
    """Return the words that :func:`parse_question` reads as *question*, without its machine and device."""
    kind = next(name for name, cls in KINDS.items() if cls is type(question))
    return f"{kind}:{','.join(_written(question, kind))}"


def _written(question: Single, kind: str) -> Iterator[str]:
    for field in fields(question):
        value = getattr(question, field.name)
        if field.name in _ELSEWHERE and not (kind == "disk" and field.name == "threads"):
            continue
        names_format = field.name == "precision" and getattr(question, "operator", None)  # it decides most
        if field.name == "operator" and value is not None:
            yield f"{'' if kind == 'op' else 'op='}{_snake(type(value).__name__)}"
            sizes = {inner: getattr(value, inner.name) for inner in fields(value)}
            yield from (_item(inner, size) for inner, size in sizes.items() if size != inner.default)
        elif value != field.default or names_format:
            yield _item(field, value)


def _item(field: Field[Any], value: object) -> str:
    name = _name(field.name)
    if isinstance(value, bool):
        return name if value else f"{name}=no"
    if field.name.endswith("_bytes"):
        return f"{name}={value:.17g}B"
    return f"{name}={'+'.join(map(str, value)) if isinstance(value, tuple) else value}"


def _read(cls: type[Single], items: list[str], kind: str) -> dict[str, Any]:
    operator: type[Any] | None = None
    found: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    pending: list[tuple[str, str]] = []
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if (name == "op") if equals else (kind == "op" and operator is None):
            named, known = value if equals else item, {_snake(name): cls for name, cls in known_operators().items()}
            if named not in known:
                raise ValueError(f"there is no operator '{one_line(named, 40)}'; {nearest(named, known, listed=40)}")
            operator = known[named]
        else:
            pending.append((name, value) if equals else ("", name))
    for name, value in pending:
        field, owner = _field(cls, operator, name, value)
        place = found if owner is cls else inner
        if field.name in place:
            raise ValueError(f"{_name(field.name)} is given twice")
        hint = get_type_hints(owner)[field.name]
        place[field.name] = _value(owner, field, hint, "yes" if not name and hint is bool else value)
    if operator is not None:
        _check_complete(operator, inner, _snake(operator.__name__))
        found["operator"] = operator(**inner)
        found["operator"].check()  # raises ValueError if the shape is impossible
    elif inner:
        raise ValueError("an operator is needed: op=NAME")
    _check_complete(cls, found, kind)
    return found


def _field(cls: type[Any], operator: type[Any] | None, name: str, value: str) -> tuple[Field[Any], type[Any]]:
    known = {
        _name(field.name): (field, owner)
        for owner in ([cls] if operator is None else [cls, operator])
        for field in fields(owner)
        if field.name not in ("where", "device", "operator") and (field.name != "threads" or cls is single.DiskQuestion)
    }
    hints = {word: get_type_hints(owner)[field.name] for word, (field, owner) in known.items()}
    plain = name.replace("_", "-").lower()
    if plain in known:
        return known[plain]
    if plain == "threads":
        raise ValueError(f"threads are said by {mention('threads', one_line(value, 20))}, apart from what they do")
    if name:
        raise ValueError(f"there is no '{one_line(name, 40)}'; {nearest(plain, [*known, 'op'], listed=40)}")
    word = value.replace("_", "-").lower()
    if word in known and hints[word] is bool:
        return known[word]
    if word in known:
        raise ValueError(f"{word} needs a value: {word}=...")
    if re.match(r"[\d.]", value):
        sized = [entry for entry in known.values() if entry[0].name.endswith("_bytes")]
        if sized:
            return sized[0]
    fitting = [known[word] for word, hint in hints.items() if value in _choices(hint)]
    if len(fitting) == 1:
        return fitting[0]
    words = [*known, *(choice for hint in hints.values() for choice in _choices(hint) if choice)]
    raise ValueError(f"there is no '{one_line(value, 40)}'; {nearest(value, words, listed=40)}")


def _value(owner: type[Any], field: Field[Any], hint: Any, text: str) -> Any:
    name, choices = _name(field.name), _choices(hint)
    if field.name.endswith("_bytes"):
        size = parse_quantity(text, "size", positive=True)
        return int(size) if hint is int else size
    if hint is bool:
        if text.lower() not in ("yes", "no"):
            raise ValueError(f"{name} is yes or no; got '{one_line(text, 20)}'")
        return text.lower() == "yes"
    is_tuple = get_origin(hint) is tuple
    if choices or is_tuple or hint is str:
        said = text.split("+") if is_tuple else [text]
        for word in said if choices or is_tuple else ():
            if word not in choices:
                raise ValueError(f"{name}: there is no '{one_line(word, 40)}'; {nearest(word, filter(None, choices))}")
        return tuple(said) if is_tuple else text
    if not re.fullmatch(r"-?\d{1,15}", text, re.ASCII):
        raise ValueError(f"{name} is a whole number of up to 15 digits; got '{one_line(text, 20)}'")
    # Sizes of an operator are at least 1, unless their default is 0 or their metadata say otherwise.
    least = field.metadata.get("least", 0 if field.default == 0 or owner in KINDS.values() else 1)
    if int(text) < least:
        raise ValueError(f"{name} is at least {least}; got {text}")
    return int(text)


def _check_complete(cls: type[Any], values: Mapping[str, Any], what: str) -> None:
    needed = [field.name for field in fields(cls) if field.default is MISSING and field.name != "where"]
    missing = [_name(name) for name in needed if name not in values]
    if missing:
        example = f"; for example {_KINDS[what][1]}" if what in _KINDS else ""
        raise ValueError(f"{what} needs {', '.join(missing)}{example}")


def _choices(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return tuple(get_args(hint))
    return tuple(choice for part in get_args(hint) for choice in _choices(part))


def _name(field: str) -> str:
    """Return a field's name in words: ``is_cold`` is ``cold``, ``size_bytes`` is ``size``."""
    return field.removeprefix("is_").removesuffix("_bytes").replace("_", "-")


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def swept(text: str) -> list[tuple[int | None, str]]:
    """Return each size in bytes of the sweep in *text*, with its question; without a sweep, only None and *text*.

    Raises InputError if the sweep cannot be read, or if there are two.
    """
    kind, _, rest = text.partition(":")
    items = [item.strip() for item in rest.split(",")]
    found = [item for item in items if item.startswith("sweep:")]
    if not found:
        return [(None, text)]
    if len(found) > 1:
        raise refused("workload", f"one size is swept; got {len(found)} sweeps", one_line(text, 60))
    place = items.index(found[0])
    sizes = parse_workload(found[0]).sizes
    return [(size, f"{kind}:{','.join([*items[:place], f'{size}B', *items[place + 1 :]])}") for size in sizes]
