"""A question over many sizes: ``access:chase,sweep:4KiB-256MiB`` is one question for each size."""

from __future__ import annotations

from simulator.errors import one_line, refused
from simulator.workload.parse import parse_workload

_SWEEP = "sweep:"


def swept(text: str) -> list[tuple[int | None, str]]:
    """Return each size in bytes of the sweep in *text*, with its question; without a sweep, only None and *text*.

    Raises InputError if the sweep cannot be read, or if there are two.
    """
    kind, _, rest = text.partition(":")
    items = [item.strip() for item in rest.split(",")]
    found = [i for i, item in enumerate(items) if item.startswith(_SWEEP)]
    if not found:
        return [(None, text)]
    if len(found) > 1:
        raise refused("workload", f"one size is swept; got {len(found)} sweeps", one_line(text, 60))
    place = found[0]
    sizes = parse_workload(items[place]).sizes
    return [(size, f"{kind}:{','.join([*items[:place], f'{size}B', *items[place + 1 :]])}") for size in sizes]
