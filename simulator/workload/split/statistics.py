"""Synchronised batch norms: ranks exchange the statistics of their samples (docs/decisions/parallelism.md)."""

from simulator.errors import refused
from simulator.records import replace
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import BatchNorm, Exchange
from simulator.workload.operators.moves import RanksFound
from simulator.workload.operators.reduction import LocalStatistics, SyncedNorm
from simulator.workload.split import Splitter


@once
def synchronised(network: Network, ranks: int, *, captured: bool) -> Network:
    """Return *network* on one of *ranks* that normalise each channel over all samples; raises InputError without any.

    ``torch.nn.SyncBatchNorm``: forward, every rank gathers 2 C + 1 numbers of each; backward, they add up 2 C.  Unless
    it is *captured*, the host waits for three look-ups of the ranks that have samples.
    """
    if not any(isinstance(layer.operator, BatchNorm) for layer in network.layers):
        raise refused("layout", f"sync_bn: {network.name} has no batch norm; leave it out")
    return network if ranks == 1 else _Splitter(network, ranks).run(looks=not captured)


class _Splitter(Splitter):
    def run(self, *, looks: bool) -> Network:
        for layer in self._network.layers:
            if isinstance(layer.operator, BatchNorm):
                self._synchronise(layer, layer.operator, looks)
            else:
                self._layers.append(layer)
        return self._made()

    def _synchronise(self, layer: Layer, norm: BatchNorm, looks: bool) -> None:
        """Add the halves of *norm*, and between them one exchange for each pass, which leave the images in place."""
        n, channels, ranks = norm.output_elements, norm.channels, self._ranks
        sizes = {name: getattr(norm, name) for name in norm.result}
        parts = {
            "statistics": LocalStatistics(**sizes),
            "sum": Exchange("dp", None, "all-reduce", 2 * channels, n, wide=True),
            "gather": Exchange("dp", "all-gather", None, ranks * (2 * channels + 1), n, wide=True),
        }
        for number, numbers in enumerate((1, channels, channels) if looks else ()):  # of counts, means and deviations
            parts[f"found{number}"] = RanksFound(ranks, ranks, numbers, n, waits=number > 0)
        read = layer.inputs[0]
        for name, part in parts.items():
            read = self._append(f"{layer.name}.{name}", part, read, in_place=True)
        self._layers.append(replace(layer, operator=SyncedNorm(**sizes, ranks=ranks, waits=looks), inputs=(read,)))
