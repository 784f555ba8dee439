"""Blocks for each stage of a pipeline, so that all take about as long (:func:`balanced`)."""

from collections.abc import Sequence

from simulator.questions.layout import Layout
from simulator.training.schedules import paths_of

_WORTH = 0.99  # of the time of the slowest stage, at most


def balanced(
    layout: Layout, even: Sequence[int], block_s: float, ends_s: tuple[float, float], paces: Sequence[float]
) -> tuple[int, ...]:
    """Return the blocks of each part of the pipeline of *layout*; none if *even* ones are as good.

    *block_s*: what a block takes; *ends_s*: what the first and the last one take besides, with the embedding and the
    logits; *paces*: how many times as long each stage's device takes.  Each next block goes to the stage that then ends
    first, which is the best division of equal blocks; every part has one at least.
    """
    path, count = paths_of(layout)[0], sum(even)
    if len(paths_of(layout)) > 1 or len(path) > count:
        return ()
    parts: list[list[int]] = [[] for _ in range(layout.pp)]
    for part, (stage, _) in enumerate(path):
        parts[stage].append(part)
    besides = [0.0] * layout.pp
    besides[path[0][0]] += ends_s[0]
    besides[path[-1][0]] += ends_s[1]

    def ends(stage: int, blocks: int) -> float:
        return paces[stage] * (besides[stage] + blocks * block_s)

    blocks = [len(each) for each in parts]
    for _ in range(count - sum(blocks)):
        blocks[min(range(layout.pp), key=lambda stage: (ends(stage, blocks[stage] + 1), stage))] += 1
    usual = [sum(even[part] for part in each) for each in parts]
    if max(map(ends, range(layout.pp), blocks)) > _WORTH * max(map(ends, range(layout.pp), usual)):
        return ()
    found = [0] * count
    for each, whole in zip(parts, blocks, strict=True):
        for place, part in enumerate(each):
            found[part] = whole // len(each) + (place < whole % len(each))
    return tuple(found[: len(path)])
