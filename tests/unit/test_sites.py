"""Groups of a cluster with networks of their own: racks and sites, joined by uplinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import Result, simulate
from simulator.errors import InputError

_PARTS = "parts:\n  wan: {kind: link, of: ethernet, bandwidth: 10 Gbit/s, latency: 1 ms}\n"
_BOX = """\
schema_version: 1
name: box
devices:
  gpu0: {part: t4}
  cpu0: {part: xeon-gold-6230}
  nic0: {kind: nic, bandwidth: 25 Gbit/s}
links:
  - {between: [gpu0, cpu0], part: pcie3-x16}
  - {between: [nic0, cpu0], part: pcie3-x16}
"""


def _cluster(folder: Path, *groups: str) -> str:
    (folder / "box.yaml").write_text(_BOX)
    listed = "".join(f"    - {{node: box.yaml, {group}}}\n" for group in groups)
    path = folder / "sites.yaml"
    path.write_text(f"schema_version: 1\nname: sites\n{_PARTS}cluster:\n  groups:\n{listed}")
    return str(path)


def _exchange_s(path: str, size: str, strategy: str = "ring") -> float:
    found = simulate(topology=path, workload=f"bytes:{size}", strategy=strategy)
    assert isinstance(found, Result)
    return found.sync_time_s


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_an_uplink_is_one_link_however_many_nodes_share_it(tmp_path: Path, nodes: int) -> None:
    path = _cluster(tmp_path, f"nodes: {nodes}", f"nodes: {nodes}, uplink: wan")
    n = 2 * nodes
    # Each of the ring's 2 (n - 1) rounds ends when its message of 1/n has crossed the uplink.
    assert _exchange_s(path, "1GB") == pytest.approx(2 * (n - 1) * (1e9 / n / 1.25e9 + 1e-3), rel=0.01)


def test_the_latency_of_an_uplink_counts_in_each_round(tmp_path: Path) -> None:
    near = _cluster(tmp_path, "nodes: 2", "nodes: 2")
    near_s = _exchange_s(near, "8B")
    assert _exchange_s(_cluster(tmp_path, "nodes: 2", "nodes: 2, uplink: wan"), "8B") - near_s == pytest.approx(
        6e-3, rel=0.02
    )
    # With uplinks at both, a message between groups crosses two.
    both = _cluster(tmp_path, "nodes: 2, uplink: wan", "nodes: 2, uplink: wan")
    assert _exchange_s(both, "8B") - near_s == pytest.approx(12e-3, rel=0.02)


def test_a_group_equals_the_same_network_drawn_as_a_file(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.yaml"
    drawn.write_text(
        f"""\
schema_version: 1
name: drawn
{_PARTS}devices:
  gpu[0-3]: {{part: t4}}
  cpu[0-3]: {{part: xeon-gold-6230}}
  nic[0-3]: {{kind: nic, bandwidth: 25 Gbit/s}}
  network: {{kind: network-switch}}
  network1: {{kind: network-switch}}
links:
  - {{between: ["gpu[0-3]", "cpu[0-3]"], part: pcie3-x16}}
  - {{between: ["nic[0-3]", "cpu[0-3]"], part: pcie3-x16}}
  - {{between: ["nic[0-1]", network], part: ethernet-25g}}
  - {{between: ["nic[2-3]", network1], part: ethernet-25g}}
  - {{between: [network1, network], part: wan}}
"""
    )
    path = _cluster(tmp_path, "nodes: 2, fabric: ethernet-25g", "nodes: 2, fabric: ethernet-25g, uplink: wan")
    for strategy in ("ring", "sharded", "gpu0"):
        found_s = _exchange_s(path, "64MB", strategy)
        assert found_s == pytest.approx(_exchange_s(str(drawn), "64MB", strategy), rel=1e-9), strategy


def test_a_group_has_a_fabric_of_its_own(tmp_path: Path) -> None:
    slow = _cluster(tmp_path, "nodes: 2, fabric: 10 Gbit/s", "nodes: 2")
    assert _exchange_s(slow, "1GB") == pytest.approx(2 * 3 / 4 * 1e9 / 1.25e9, rel=0.1)


def test_links_that_are_not_there_are_told_all_at_once(tmp_path: Path) -> None:
    path = _cluster(tmp_path, "nodes: 2, fabric: ethernet-11g", "nodes: 2, uplink: wam")
    with pytest.raises(InputError) as error:
        _exchange_s(path, "1GB")
    first, second = str(error.value).splitlines()
    assert ":7:" in first
    assert "'ethernet-11g'" in first
    assert ":8:" in second
    assert "did you mean 'wan'" in second
