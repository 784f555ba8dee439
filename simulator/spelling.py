"""How errors name a field of a question: each door spells ``mention("bucket_bytes", 0)`` as its users write it."""

import re
from collections.abc import Mapping
from typing import Literal

from simulator.package_data import own_data

Door = Literal["field", "python", "command", "value"]
"""Who reads a message: one who made the question, or asks in Python or by a command; or where values stand alone."""
_OPTIONS: Mapping[str, str] = own_data("simulator", "spelling.json")["options"]
"""Options whose name is not that of their field, by field."""
_WORDS: Mapping[str, str] = own_data("simulator", "spelling.json")["words"]
"""Options that are keywords or names in Python, by what they are called there."""
_NUMBER = r"-?\d[\w.+-]*"
# Control characters, which errors escape in everything that a user wrote.
_MARK = re.compile("\x0e([^\x1f]*)\x1f([^\x0f]*)\x0f")


def mention(field: str, value: object = "") -> str:
    """Return the place of *field* in a message, with the *value* that was said; True and False are a switch's."""
    return f"\x0e{field}\x1f{value}\x0f"


def option_of(field: str) -> str:
    """Return the option that says *field*, as Python names it."""
    return _OPTIONS.get(field, field)


def word_of(option: str) -> str:
    """Return *option* as the command line spells it: ``--global-batch``."""
    return f"--{_WORDS.get(option, option).replace('_', '-')}"


def spelt(text: str, door: Door = "field") -> str:
    """Return *text* with its fields spelt as those write them who ask by *door*."""
    return _MARK.sub(lambda mark: _spelt(mark[1], mark[2], door), text) if "\x0e" in text else text


def _spelt(field: str, value: str, door: Door) -> str:
    if door == "value":
        return value
    name = field if door == "field" else option_of(field)
    if door != "command":
        if field == "sizes" and "=" in value and door == "python":
            key, _, size = value.partition("=")
            return f"{name}={{{key!r}: {size if re.fullmatch(_NUMBER, size) else repr(size)}}}"
        plain = value in ("", "True", "False", "None") or re.fullmatch(_NUMBER, value)
        return f"{name}={value if plain else repr(value)}" if value else name
    if value == "False":
        return f"--no-{name.replace('_', '-')}"
    return word_of(name) if value in ("", "True") else f"{word_of(name)} {value}"
