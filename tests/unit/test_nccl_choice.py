"""A note where NCCL's choice of an algorithm is slower than another that users can force."""

from __future__ import annotations

import pytest

from simulator import Result, simulate

WORDS = "NCCL chooses ring by its own tables; NCCL_ALGO=Tree would take "


def noted(**options: object) -> list[str]:
    found = simulate("dgx-a100-80gb", **options)  # type: ignore[arg-type]
    assert isinstance(found, Result)
    return [note for note in found.notes if note.startswith("NCCL chooses")]


def test_a_slower_choice_is_said_with_the_time_of_the_faster() -> None:
    (note,) = noted(workload="1 GB", nodes=2, fabric="200Gbit/s")
    tree = simulate("dgx-a100-80gb", workload="1 GB", nodes=2, fabric="200Gbit/s", algorithm="tree")
    assert isinstance(tree, Result)
    assert note == f"{WORDS}{tree.sync_time_s * 1e3:.4g} ms in place of 9.93 ms"


@pytest.mark.parametrize(
    "options",
    [
        {"workload": "1 GB", "nodes": 2, "fabric": "175Gbit/s"},  # trees are chosen
        {"workload": "64 KiB"},  # within a machine, where no measurement forces a tree
        {"workload": "1 GB", "nodes": 2, "algorithm": "ring"},  # the user's choice
        {"workload": "1 GB", "nodes": 2, "strategy": "ring"},
        {"workload": "1 GB", "nodes": 2, "collective": "all-to-all"},
    ],
)
def test_a_choice_that_is_best_or_the_user_s_is_not_criticised(options: dict[str, object]) -> None:
    assert noted(**options) == []
