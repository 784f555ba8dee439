"""Inputs that once hung, exhausted memory, caused an internal error or sent escape codes to the terminal, by name.

Each is as small as still shows the fault; ``tests/unit/test_hostile_inputs.py`` says what is expected.
"""

from __future__ import annotations

from collections.abc import Callable

HEAD = "schema_version: 1\nname: t\n"
FOUR = f"{HEAD}devices:\n  gpu[0-3]: {{kind: gpu}}\n  switch0: {{kind: pcie-switch}}\nlinks:\n"


def _link(more: str) -> str:
    return f"{FOUR}  - {{between: ['gpu[0-3]', switch0], kind: pcie, {more}}}\n"


def mesh(n: int, linked: Callable[[int, int], int]) -> str:
    """Return a machine of *n* GPUs on one PCIe switch, with ``linked(a, b)`` NVLinks between GPUs a and b."""
    cells = [["X" if a == b else str(linked(min(a, b), max(a, b))) for b in range(n)] for a in range(n)]
    rows = "".join(f"      gpu{a} {' '.join(row)}\n" for a, row in enumerate(cells))
    return (
        f"{HEAD}devices:\n  gpu[0-{n - 1}]: {{kind: gpu}}\n  sw: {{kind: pcie-switch}}\n"
        f"links:\n  - {{between: ['gpu[0-{n - 1}]', sw], kind: pcie, bandwidth: 1 GB/s}}\n"
        f"meshes:\n  - kind: nvlink\n    bandwidth: 20 GB/s\n    matrix: |\n{rows}"
    )


# Graphs without a cycle through all GPUs, or with more such cycles than can be listed.
MESHES = {
    "two sides of 5 and 7": mesh(12, lambda a, b: int(a < 5 <= b)),
    "two sides of 6 and 8": mesh(14, lambda a, b: int(a < 6 <= b)),
    "two sides of 7 and 9": mesh(16, lambda a, b: int(a < 7 <= b)),
    "two groups of 8 that share a GPU": mesh(15, lambda a, b: int(b <= 7 or a >= 7)),
    "all of 16 with all": mesh(16, lambda a, b: 1),
    "all of 12 with all, twice": mesh(12, lambda a, b: 2),
    "a path of 16": mesh(16, lambda a, b: int(b == a + 1)),
    "a star of 16": mesh(16, lambda a, b: int(a == 0)),
    "16 with a hole in each third": mesh(16, lambda a, b: int((a * 7 + b * 3) % 3 > 0)),
}

# The file, and the beginning of the error's first line after the position.
REFUSED: dict[str, tuple[str, str]] = {
    "ranges that do not pair up": (
        f"{HEAD}devices:\n  gpu[0-59999]: {{kind: gpu}}\nlinks:\n"
        + "  - {between: ['gpu[0-59999]', 'gpu[0-59998]'], kind: pcie, bandwidth: 1 GB/s}\n" * 2_000,
        "6:15: the ends stand for 60000 and 59999 devices; equal numbers pair up, one joins all",
    ),
    "links to devices that are not there": (
        f"{HEAD}devices:\n  gpu[0-59999]: {{kind: gpu}}\nlinks:\n"
        + "".join(f"  - {{between: [gpx{i}, gpy{i}], kind: pcie, bandwidth: 1 GB/s}}\n" for i in range(1_000)),
        "6:16: no device is called 'gpx0'; did you mean 'gpu0'?",
    ),
    "a matrix of GPUs that are not there": (
        f"{HEAD}devices:\n  gpx[0-59999]: {{kind: gpu}}\nmeshes:\n"
        "  - kind: nvlink\n    bandwidth: 1 GB/s\n    matrix: |\n"
        + "".join(f"      gpu{a} {' '.join('X' if a == b else '1' for b in range(120))}\n" for a in range(120)),
        "8:13: no device is called 'gpu0'; did you mean 'gpx0'?",
    ),
    "many devices with a wrong key": (
        f"{HEAD}devices:\n" + "".join(f"  gpu{i}: {{kinds: gpu}}\n" for i in range(3_000)),
        "4:10: unknown key 'kinds'; did you mean 'kind'?",
    ),
    "more devices than a file may say one by one": (
        f"{HEAD}devices:\n" + "".join(f"  gpu{i}: {{kinds: gpu}}\n" for i in range(60_000)),
        "20002:14: holds more than 100,000 words and brackets up to here; ranges (gpu[0-7]) say it shorter",
    ),
    "many parts that are not there": (
        f"{HEAD}devices:\n" + "".join(f"  gpu{i}: {{part: v10{i}}}\n" for i in range(2_000)),
        "4:16: no part is called 'v100'; did you mean ",
    ),
    "a whole number to base 60": (_link(f"bandwidth: 1 GB/s, count: 1{':59' * 300_000}"), "7:76: '1:59:59:59"),
    "a number to base 60": (_link(f"bandwidth: 1 GB/s, efficiency: 1{':59' * 300_000}.5"), "7:81: '1:59:59:59"),
    "a number of 6,000 digits": (
        _link(f"bandwidth: 1 GB/s, count: 0x{'f' * 6_000}"),
        "7:76: '0xffffff",
    ),
    "a version of 5,000 digits": (f"schema_version: 0x{'f' * 5_000}\nname: t\ndevices: {{}}\n", "1:17: '0xffffff"),
    "a key that is no text": (
        f"{HEAD}devices:\n  !!binary aGk=: {{kind: gpu}}\n",
        "4:3: the tag !!binary is not supported; write plain text, a list or a mapping",
    ),
    "no bandwidth to speak of": (_link("bandwidth: 5e-324 B/s"), "7:61: links.0.bandwidth: bandwidth must be from"),
    "a bandwidth beyond all": (_link("bandwidth: 1e290 PB/s"), "7:61: links.0.bandwidth: bandwidth must be from"),
    "a latency beyond all": (_link("bandwidth: 1 GB/s, latency: 1.7e308 s"), "7:78: links.0.latency: time must be"),
    "no efficiency to speak of": (_link("bandwidth: 1 GB/s, efficiency: 1.0e-320"), "7:81: links.0.efficiency: must"),
    "a limit that is none": (
        f"{HEAD}cluster: {{node: p3.16xlarge, nodes: 2, oversubscription: .inf}}\n",
        "3:58: cluster.oversubscription: must be a finite number; got inf",
    ),
}
ESCAPES = (
    f'schema_version: 1\nname: "a\\0b\\x1b[31mRED\\e]0;title\\a\u202e"\n{_link("bandwidth: 16 GB/s")[len(HEAD) :]}'
)
