"""Machines for tests: small ones as YAML, and hypothesis strategies for random ones."""

from __future__ import annotations

from hypothesis import strategies as st

from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.topology.load import topology_from_text


def machine_from(text: str, **options: object) -> Machine:
    """Return the machine that the YAML *text* describes."""
    return compile_machine(topology_from_text(text, **options))  # type: ignore[arg-type]


def ring_machine(n: int, bandwidth: str = "54 GB/s", latency: str = "1 us") -> Machine:
    """Return n GPUs joined in a ring by single links."""
    return machine_from(
        f"""
schema_version: 1
name: ring of {n}
devices:
  gpu[0-{n - 1}]: {{kind: gpu}}
links:
  - {{between: ["gpu[0-{n - 1}]", "gpu[1-{n - 1},0]"], kind: nvlink, bandwidth: {bandwidth}, latency: {latency}}}
"""
    )


def meshed(n: int, links: str) -> Machine:
    """Return n GPUs with slow PCIe, and *links* between them, as lines of YAML."""
    return machine_from(f"""
schema_version: 1
name: mesh
devices:
  gpu[0-{n - 1}]: {{kind: gpu}}
  cpu0: {{kind: cpu}}
links:
  - {{between: ["gpu[0-{n - 1}]", cpu0], kind: pcie, bandwidth: 1 GB/s}}
{links}
transport: {{peer_to_peer: sys}}
""")


def crossbar(n: int, bandwidth: str = "50 GB/s", latency: str = "0 us") -> Machine:
    """Return n GPUs on one NVLink switch; *latency* is that of a whole path from GPU to GPU."""
    return machine_from(
        f"""
schema_version: 1
name: crossbar of {n}
devices:
  gpu[0-{n - 1}]: {{kind: gpu}}
  switch0: {{kind: nvlink-switch, latency: {latency}}}
links:
  - {{between: ["gpu[0-{n - 1}]", switch0], kind: nvlink, bandwidth: {bandwidth}}}
"""
    )


_BANDWIDTHS = st.sampled_from(["1 GB/s", "3 GB/s", "12.8 GB/s", "16 GB/s", "18 GB/s", "50 GB/s"])
_LATENCIES = st.sampled_from(["0 s", "0.5 us", "1 us", "7 us"])


@st.composite
def machines(draw: st.DrawFn, min_gpus: int = 2, max_gpus: int = 8, latencies: bool = True) -> Machine:
    """Draw random machines: a tree of PCIe switches under one or two sockets, and some NVLinks between GPUs."""
    n_gpus = draw(st.integers(min_gpus, max_gpus))
    n_cpus = draw(st.integers(1, 2))
    n_switches = draw(st.integers(0, 3))
    latency = _LATENCIES if latencies else st.just("0 s")
    lines = ["schema_version: 1", "name: random", "devices:", f"  gpu[0-{n_gpus - 1}]: {{kind: gpu}}"]
    memory = draw(st.sampled_from(["", ", memory_bandwidth: 20 GB/s"]))
    lines += [f"  cpu[0-{n_cpus - 1}]: {{kind: cpu{memory}}}"]
    if n_switches:
        lines += [f"  sw[0-{n_switches - 1}]: {{kind: pcie-switch, latency: {draw(latency)}}}"]
    lines.append("links:")

    def link(a: str, b: str, kind: str) -> None:
        duplex = "" if kind != "pcie" else draw(st.sampled_from(["", ", duplex: half"]))
        figures = f"bandwidth: {draw(_BANDWIDTHS)}, latency: {draw(latency)}{duplex}"
        lines.append(f"  - {{between: [{a}, {b}], kind: {kind}, {figures}}}")

    if n_cpus == 2:
        link("cpu0", "cpu1", "socket")
    uppers = [f"cpu{i}" for i in range(n_cpus)]
    for i in range(n_switches):
        link(f"sw{i}", draw(st.sampled_from(uppers)), "pcie")
        uppers.append(f"sw{i}")
    for i in range(n_gpus):
        link(f"gpu{i}", draw(st.sampled_from(uppers)), "pcie")
    pairs = [(a, b) for a in range(n_gpus) for b in range(a + 1, n_gpus)]
    for a, b in draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)):
        link(f"gpu{a}", f"gpu{b}", "nvlink")
    level = draw(st.sampled_from(["none", "pix", "pxb", "phb", "sys"]))
    lines.append(f"transport: {{peer_to_peer: {level}}}")
    return machine_from("\n".join(lines) + "\n")


UNLIKE = """
schema_version: 1
name: unlike
devices:
  gpu0: {part: v100-pcie-16gb}
  gpu1: {part: k80-die}
  gpu2: {part: gtx-1080}
  cpu0: {part: xeon-gold-6230}
links:
  - {between: ["gpu[0-2]", cpu0], part: pcie3-x16}
"""
