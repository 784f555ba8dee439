"""Synchronised batch norms: ranks exchange the statistics of their samples (docs/decisions/parallelism.md)."""

from simulator.errors import refused
from simulator.records import replace
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import BatchNorm, Exchange, LocalStatistics, SyncedNorm
from simulator.workload.split import Splitter


@once
def synchronised(network: Network, ranks: int) -> Network:
    """Return *network* on one of *ranks* that normalise each channel over all samples; raises InputError without any.

    ``torch.nn.SyncBatchNorm``: forward, every rank gathers 2 C + 1 numbers of each; backward, they add up 2 C.
    """
    if not any(isinstance(layer.operator, BatchNorm) for layer in network.layers):
        raise refused("layout", f"sync_bn: {network.name} has no batch norm")
    return network if ranks == 1 else _Splitter(network, ranks).run()


class _Splitter(Splitter):
    def run(self) -> Network:
        for layer in self._network.layers:
            if isinstance(layer.operator, BatchNorm):
                self._synchronise(layer, layer.operator)
            else:
                self._layers.append(layer)
        return self._made()

    def _synchronise(self, layer: Layer, norm: BatchNorm) -> None:
        """Add the halves of *norm*, and between them one exchange for each pass, which leave the images in place."""
        sizes, n = {name: getattr(norm, name) for name in norm.result}, norm.output_elements
        gathered, summed = self._ranks * (2 * norm.channels + 1), 2 * norm.channels
        read = self._append(f"{layer.name}.statistics", LocalStatistics(**sizes), layer.inputs[0], in_place=True)
        gather = Exchange("dp", "all-gather", None, gathered, n, wide=True)
        read = self._append(f"{layer.name}.gather", gather, read, in_place=True)
        total = Exchange("dp", None, "all-reduce", summed, n, wide=True)
        read = self._append(f"{layer.name}.sum", total, read, in_place=True)
        self._layers.append(replace(layer, operator=SyncedNorm(**sizes, ranks=self._ranks), inputs=(read,)))
