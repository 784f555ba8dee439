"""PCIe lanes of a CPU compared with the devices attached to it."""

from __future__ import annotations

import pytest

from simulator.cli import run
from simulator.topology.load import topology_from_text

DESKTOP = """schema_version: 1
name: eight-cards
devices:
  gpu[0-7]: {part: gtx-1080}
  cpu0: {part: generic-desktop-cpu}
links:
  - {between: ["gpu[0-7]", cpu0], part: pcie3-x16}
"""
SWITCHED = """schema_version: 1
name: behind-a-switch
devices:
  gpu[0-7]: {part: gtx-1080}
  plx0: {part: pex8796}
  cpu0: {part: generic-desktop-cpu}
links:
  - {between: ["gpu[0-7]", plx0], part: pcie3-x16}
  - {between: [plx0, cpu0], part: pcie3-x16}
"""


def test_a_desktop_with_eight_cards_is_told_so_when_it_is_loaded(tmp_path, capsys) -> None:
    path = tmp_path / "eight.yaml"
    path.write_text(DESKTOP)
    assert run(["--topology", str(path), "--workload", "bytes:1MB", "--strategy", "ring"]) == 0
    err = capsys.readouterr().err
    assert f"warning: {path}:5:3: cpu0: links take 128 PCIe lanes, and the CPU has 24" in err


def test_lanes_behind_a_switch_count_once() -> None:
    assert topology_from_text(SWITCHED).notes == ()


@pytest.mark.parametrize(("part", "cards", "said"), [("pcie3-x8", 3, False), ("pcie3-x8", 4, True)])
def test_links_of_fewer_lanes_take_fewer(part, cards, said) -> None:
    text = DESKTOP.replace("pcie3-x16", part).replace("[0-7]", f"[0-{cards - 1}]")
    assert bool(topology_from_text(text).notes) is said
