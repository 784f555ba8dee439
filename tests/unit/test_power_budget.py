"""A machine whose GPUs together may draw less than their boards: each is held to its share."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import simulate
from simulator.cli import run
from simulator.errors import InputError
from simulator.topology.load import load_topology

MACHINE = """schema_version: 1
name: held
power_budget: {budget}
devices:
  gpu[0-1]: {{part: {part}}}
  cpu0: {{part: xeon-platinum-8480c}}
links:
  - {{between: ["gpu[0-1]", cpu0], part: pcie5-x16}}
"""


def machine(folder: Path, budget: str, part: str = "h100-sxm5-80gb") -> str:
    file = folder / f"{budget.replace(' ', '')}.yaml"
    file.write_text(MACHINE.format(budget=budget, part=part), encoding="utf-8")
    return str(file)


def test_each_gpu_has_its_share(tmp_path: Path) -> None:
    parts = [device.part for device in load_topology(machine(tmp_path, "800 W")).devices if device.kind == "gpu"]
    assert [part.board_power for part in parts] == [400.0, 400.0]  # type: ignore[union-attr]
    (first, _) = (d.part for d in load_topology(machine(tmp_path, "5 kW")).devices if d.kind == "gpu")
    assert first.board_power == 700.0  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:power_budget")
def test_less_power_takes_longer_and_no_more_energy(tmp_path: Path) -> None:
    asked = {"workload": "llama3-8b", "sizes": ["layers=2"], "batch": 2, "seq_len": 2048}
    times = [simulate(machine(tmp_path, f"{watt} W"), **asked).step_time_s for watt in (5000, 1400, 1000, 700)]
    assert times[0] == times[1] < times[2] < times[3]


def test_where_it_cannot_be_divided(tmp_path: Path) -> None:
    text = "schema_version: 1\nname: two\npower_budget: 4 kW\ncluster: {node: dgx-h100, nodes: 2}\n"
    file = tmp_path / "two.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(
        InputError, match=r"two.yaml:3:\d+: power_budget: is one machine's; put it into the file of the node"
    ):
        load_topology(str(file))


def test_the_answer_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = ["--workload", "llama3-8b", "--set", "layers=2", "--batch", "1", "--seq-len", "2048"]
    assert run(["--topology", machine(tmp_path, "1 kW"), *network]) == 0
    told = capsys.readouterr()
    assert "warning: power_budget: holds each h100-sxm5-80gb to 500 of 700 W" in told.err
    assert "not validated: no measured step of boards held below their power" in " ".join(told.out.split())


def test_no_board_takes_so_low_a_limit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"3:15: power_budget: each h100-sxm5-80gb would have 150 W; .* below 175 W"):
        load_topology(machine(tmp_path, "300 W"))
