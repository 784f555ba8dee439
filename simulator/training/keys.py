"""Keys of a key-value store: parameters that are pushed and pulled together, and their servers.

If a server is lost during an exchange (:class:`Loss`), the remaining ones take over its keys, in equal slices.  The
first worker sends them the parameters that it pulled last, because the lost server's are gone.  Then every worker
repeats all transfers that were in progress, and all pushes whose results had not yet returned to all workers; later
transfers use the remaining servers.  The lost server's optimiser state is lost (Li et al., OSDI 2014, section 4.3, keep
a copy on the next server of a ring; none is kept here).  The loss is detected at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from simulator.records import dataclass, replace
from simulator.step.launch import Launch
from simulator.training.data_parallel import ready_after
from simulator.workload.network import Network

# Keys with at least this many elements are sliced evenly over all servers; a smaller one is on a single server
# (MXNet 1.9, MXNET_KVSTORE_BIGARRAY_BOUND, docs "Environment Variables").
_SLICED_FROM = 1_000_000


@dataclass(frozen=True, slots=True)
class Key:
    """The parameters of a layer.

    Issue ``ready_after`` of a step's passes completes their gradients, and issue ``needed_by`` is the first to read
    them.  ``shares_bytes`` are the bytes on each server.
    """

    layer: str
    ready_after: int
    needed_by: int
    size_bytes: float
    shares_bytes: tuple[float, ...]


def keys_of(
    network: Network, passes: Sequence[Launch], element_bytes: int, n_servers: int, *, spread: bool = False
) -> list[Key]:
    """Return the keys of *network*, one per layer, in the order in which gradients become ready (last layer first).

    *passes* are the issues of the forward and the backward pass.  Each small key goes to the server with the fewest
    bytes so far.  *spread*: all keys are sliced evenly, as large ones are.
    """
    number_of = {layer.name: number for number, layer in enumerate(network.layers)}
    first_use: dict[str, int] = {}
    for number, layer in enumerate(network.layers):
        for parameter in layer.parameters:
            first_use.setdefault(parameter.name, number)
    forward = [(number_of[issue.layer], i) for i, issue in enumerate(passes) if issue.part == "forward"]
    held_bytes = [0.0] * n_servers
    keys = []
    for place, parameters in enumerate(ready_after(passes, network)):
        if not parameters:
            continue
        first = min(first_use[parameter.name] for parameter in parameters)
        needed_by = next((i for number, i in forward if number >= first), len(passes) - 1)
        elements = sum(parameter.elements for parameter in parameters)
        size_bytes = float(elements * element_bytes)
        if spread or elements >= _SLICED_FROM:
            shares = [size_bytes / n_servers] * n_servers
        else:
            shares = [0.0] * n_servers
            shares[held_bytes.index(min(held_bytes))] = size_bytes
        held_bytes = [held + share for held, share in zip(held_bytes, shares, strict=True)]
        keys.append(Key(passes[place].layer, place, needed_by, size_bytes, tuple(shares)))
    return keys


class ActivityProgress(Enum):
    """The state of an activity when the server was lost."""

    DONE = "done"
    UNDER_WAY = "under way"
    NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Loss:
    """The server with index ``server`` is lost at ``at_s`` seconds.

    ``spans_s`` has the start and end of each stage, step and key without the loss, over all teams.
    """

    server: int
    at_s: float
    spans_s: Mapping[tuple[str, int, int], tuple[float, float]]  # by stage, step, key

    def progress(self, stage: str, step: int, key: int) -> ActivityProgress:
        """Return the progress of *stage* of *key* at the loss; DONE only if it was done for all teams."""
        start_s, end_s = self.spans_s.get((stage, step, key), (float("inf"), float("inf")))
        if end_s <= self.at_s:
            return ActivityProgress.DONE
        return ActivityProgress.UNDER_WAY if start_s < self.at_s else ActivityProgress.NOT_BEGUN

    def without(self, key: Key) -> Key:
        """Return *key* spread over the remaining servers."""
        kept = [0.0 if j == self.server else share for j, share in enumerate(key.shares_bytes)]
        shares = zip(kept, self.only(key).shares_bytes, strict=True)
        return replace(key, shares_bytes=tuple(own + more for own, more in shares))

    def only(self, key: Key) -> Key:
        """Return the lost server's part of *key*, spread over the remaining servers."""
        left = len(key.shares_bytes) - 1
        more = key.shares_bytes[self.server] / left
        return replace(key, shares_bytes=tuple(0.0 if j == self.server else more for j in range(left + 1)))
