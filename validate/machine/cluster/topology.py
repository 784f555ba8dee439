"""The topology of a shaped network: its rate, its delay, Ethernet and TCP overheads, and message costs."""

from __future__ import annotations

from simulator.records import dataclass
from validate.machine.cluster.commands import LinkShape

# A frame carries 1500 B: 20 of IP, 20 of TCP, 12 of TCP timestamps and 1448 of payload.  tc counts each frame with its
# 14 B header, also within a longer packet (Linux, net/core/dev.c, qdisc_pkt_len_init).  The 24 B of preamble, checksum
# and gap that a real wire adds do not exist here.
EFFICIENCY = 1448 / (1500 + 14)


@dataclass(frozen=True, slots=True)
class MessageCosts:
    """Processor time of one message and of one round, in seconds, on ``processors`` that all hosts share.

    The defaults were measured on a virtual machine with two cores: PyTorch 2.13, gloo, Linux 6.18.
    """

    message_s: float = 35e-6
    round_s: float = 100e-6
    processors: int | None = None  # None: each host has its own
    is_measured: bool = False


def machine_name(shape: LinkShape) -> str:
    """Return the network's name in tables: ``netns-100mbit``, or ``netns-100mbit-1000us`` with a delay."""
    name = f"netns-{shape.rate_Bps * 8 / 1e6:g}mbit"
    return f"{name}-{shape.delay_s * 1e6:g}us" if shape.delay_s else name


def topology_text(
    shape: LinkShape, n_nodes: int, payload_Bps: float | None = None, costs: MessageCosts | None = None
) -> str:
    """Return the topology of *n_nodes* hosts as YAML, with message costs *costs*.

    *payload_Bps* is the TCP payload rate that a probe measured; None derives it from the link rate and the overheads.
    """
    costs = costs or MessageCosts()
    shared = f"    processors: {costs.processors}\n" if costs.processors is not None else ""
    by = "rounds of short messages on this machine" if costs.is_measured else "a virtual machine with two cores"
    efficiency = EFFICIENCY if payload_Bps is None else min(1.0, payload_Bps / shape.rate_Bps)
    source = (
        "TCP with an MTU of 1500: 1448 B of payload in the 1514 B that tc counts for a frame"
        if payload_Bps is None
        else "a plain TCP stream on this machine (validate cluster --calibrate)"
    )
    return f"""\
# yaml-language-server: $schema=PATH/TO/topocast/topologies/topology.schema.json
schema_version: 1
name: {machine_name(shape)}
description: Network namespaces on one Linux machine, {shape.rate_Bps * 8 / 1e6:g} Mbit/s each way (tc tbf)
source: "validate cluster"

parts:
  shaped-veth:
    kind: link
    of: ethernet
    bandwidth: {shape.rate_Bps * 8:.0f} bit/s
    efficiency: {efficiency:.6g}
    latency: {shape.delay_s / 2 * 1e6:g} us
    source: "the rate given to tc tbf at both ends of each wire"
    sources:
      efficiency: "{source}"
      latency: "half of --delay on each of the two wires between hosts; the adapters add 10 us each"

cluster:
  node: linux-host
  nodes: {n_nodes}
  fabric: shaped-veth
  messages:
    message: {costs.message_s * 1e6:.4g} us
    round: {costs.round_s * 1e6:.4g} us
{shared}    source: "{by} (validate cluster)"
"""
