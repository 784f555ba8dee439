"""Damage a text as people and faults do: :func:`mutated`."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

WORDS = (
    *("0", "-1", "1", "4096", "1e308", "1e-320", ".inf", ".nan", "inf", "nan", "0x10", "1:30", "1_000", "\u0661"),
    *("null", "true", "~", "''", '"\\0"', '"\\e[31m"', "\u202e", "[]", "{}", "&a", "*a", "!!binary aGk=", "gpu[0-7]"),
    *(
        "gpu[0-65535]",
        "gpu0",
        "NV18",
        "NV999",
        "SYS",
        "X",
        "1 GB/s",
        "5e-324 B/s",
        "1e18 B/s",
        "1 bit/s",
        "0 s",
        "1e9 s",
    ),
    *("---", "#", ":", "- ", "\t", "9" * 50, "x" * 300, "../p3.16xlarge", "/dev/null", "p3.16xlarge", "dgx-h100"),
)


def mutated(text: str, rng: random.Random) -> bytes:
    """Return *text* after one to six changes: words replaced, lines lost, doubled or moved, bytes damaged."""
    raw = text
    for _ in range(rng.randint(1, 6)):
        lines = raw.split("\n")
        at = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                words = lines[at].split(" ")
                words[rng.randrange(len(words))] = rng.choice(WORDS)
                lines[at] = " ".join(words)
            case 1:
                del lines[at]
            case 2:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 3:
                lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
            case 4:
                place = rng.randint(0, len(lines[at]))
                lines[at] = lines[at][:place] + rng.choice(WORDS) + lines[at][place:]
            case 5:
                lines[at] = " " * rng.randint(0, 3) + lines[at].lstrip()
            case 6:
                lines[at] = lines[at] * rng.choice((2, 3, 50))
        raw = "\n".join(lines) or " "
    found = bytearray(raw.encode("utf-8", "replace"))
    if found and rng.random() < 0.1:
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def pumped(text: str, rng: random.Random) -> bytes:
    """Return *text* with a piece of it, or spaces, 30,000 to 300,000 times: patterns that backtrack hang on it."""
    at = rng.randrange(len(text))
    piece = rng.choice((text[at : at + rng.randint(1, 12)], " ", "\n", "1", "1 ", "\t"))
    end = rng.choice(("", "x", "\n"))
    return f"{text[:at]}{piece * (rng.choice((30_000, 300_000)) // len(piece))}{end}{text[at:]}".encode()


_VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", "1", [], {}, [1], [None], {"a": 1}, {"": None}, 0, 1, -1, 3, 1.5, 65, 4096),
    *(1e308, 5e-324, float("nan"), float("inf"), 10**9, 10**30, "\x1b[31m", "\u202e", "nan", "1e999"),
)
_ODD = ("9" * 5_000, "-" + "9" * 400, "1e999", "[" * 3_000 + "]" * 3_000, '{"a":' * 500 + "1" + "}" * 500)


def json_mutated(document: Any, rng: random.Random) -> bytes:
    """Return *document* as JSON after one to three changes of values: other types, huge ones, lost or new keys."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        inside: Any = document
        while True:
            keys: list[Any] = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(inside[key], dict | list) and inside[key] and rng.random() < 0.8:
                inside = inside[key]
                continue
            if rng.random() < 0.1:
                del inside[key]
            elif rng.random() < 0.1 and isinstance(inside, dict):
                inside |= {f"{key}{i}": i for i in range(rng.choice((1, 30, 3_000)))}
            else:
                inside[key] = copy.deepcopy(rng.choice((*_VALUES, "ODD")))  # a later change may go inside
            break
    text = json.dumps(document, indent=rng.choice((None, 1)))
    return text.replace('"ODD"', rng.choice(_ODD), 1).encode()
