"""Fat trees of two levels, as a topology of this project and as a platform of SimGrid, and all-reduces on both."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from simulator.network.machine import Machine
from tests.asked import exchange_on
from tests.machines import machine_from

_PYTHON = "/usr/bin/python3"  # Debian's package supports only Debian's Python
_SCRIPT = Path(__file__).resolve().parent / "simgrid_fat_tree.py"
_SIZE_BYTES = 256_000_000


def python_of_simgrid() -> str:
    """Return the Python that can import SimGrid; skip the test without one."""
    try:
        tried = subprocess.run([_PYTHON, "-c", "import simgrid"], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"{_PYTHON}: {error}")
    if tried.returncode:
        pytest.skip(f"{_PYTHON} has no SimGrid (Debian's python3-simgrid): {tried.stderr.strip().splitlines()[-1]}")
    return _PYTHON


@dataclass(frozen=True, slots=True)
class FatTree:
    """``leaves`` switches with ``hosts`` each, under ``spines``; every link has ``bandwidth_Bps`` each way."""

    leaves: int
    hosts: int
    spines: int
    bandwidth_Bps: float = 10e9
    latency_s: float = 1e-6

    @property
    def n_hosts(self) -> int:
        return self.leaves * self.hosts

    def machine(self) -> Machine:
        link = f"kind: ethernet, bandwidth: {self.bandwidth_Bps / 1e9} GB/s, latency: {self.latency_s * 1e6} us"
        under = ",".join(str(host // self.hosts) for host in range(self.n_hosts))
        up = "\n".join(f'  - {{between: ["leaf[0-{self.leaves - 1}]", spine{i}], {link}}}' for i in range(self.spines))
        return machine_from(f"""
schema_version: 1
name: fat tree
devices:
  host[0-{self.n_hosts - 1}]: {{kind: gpu}}
  leaf[0-{self.leaves - 1}]: {{kind: network-switch}}
  spine[0-{self.spines - 1}]: {{kind: network-switch}}
links:
  - {{between: ["host[0-{self.n_hosts - 1}]", "leaf[{under}]"], {link}}}
{up}
""")

    def ours_s(self, strategy: str) -> float:
        """Return our seconds of an all-reduce of 256 MB by *strategy*."""
        return exchange_on(self.machine(), strategy, _SIZE_BYTES).sync_time_s

    def theirs_s(self, python: str, schedule: str, rounds: int | None = None) -> float:
        """Return SimGrid's seconds of *rounds* rounds of *schedule* (None: of all) for 256 MB."""
        case = asdict(self) | {"schedule": schedule, "size_bytes": _SIZE_BYTES, "rounds": rounds}
        done = subprocess.run(
            [python, str(_SCRIPT)], input=json.dumps(case), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout))
