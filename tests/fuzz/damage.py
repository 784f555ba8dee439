"""Damage a text as people and faults do: :func:`mutated`."""

from __future__ import annotations

import random

__all__ = ["WORDS", "mutated"]

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
