"""The module of a step over several ranks: replicas (DistributedDataParallel) or sharded blocks (FSDP2)."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.case import Unavailable
from validate.machine.measure.cases.step_shapes import MeasuredStep

_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+")  # the name of a repeated block, such as layers.3


def across(module: Any, shape: MeasuredStep, device: Any) -> Any:
    """Return *module* wrapped for the ranks of this process group, for the step *shape* on *device*.

    Raises Unavailable where this torch lacks FSDP2.
    """
    if shape.shards:
        return _sharded(module, shape, device)
    bucket: dict[str, Any] = {"bucket_cap_mb": shape.bucket / (1 << 20)} if shape.bucket else {}
    if not shape.overlaps:  # a single bucket is full only when the last gradient is there
        size = sum(p.numel() * p.element_size() for p in module.parameters())
        bucket = {"bucket_cap_mb": size // (1 << 20) + 1}
    devices = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(module, device_ids=devices, **bucket)


def without_exchange(module: Any) -> AbstractContextManager[Any]:
    """Return the context for all micro-batches but the last, in which replicas do not exchange gradients.

    Shards are gathered and scattered in every micro-batch, since no rank keeps whole gradients.
    """
    found: AbstractContextManager[Any] = getattr(module, "no_sync", nullcontext)()
    return found


def _sharded(module: Any, shape: MeasuredStep, device: Any) -> Any:
    """Return *module* with sharded parameters: one unit for each repeated block, one for the rest."""
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        raise Unavailable(f"torch {torch.__version__} has no fully_shard; 2.6 and later have") from None
    how: dict[str, Any] = {"mesh": _mesh(dist.group.WORLD, device.type, shape.n_gpus // shape.shards, shape.shards)}
    if shape.sums_in_fp32:
        how["mp_policy"] = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for block in _blocks(module):
        fully_shard(block, **how)
    return fully_shard(module, **how)


@lru_cache(maxsize=16)
def _mesh(world: Any, kind: str, replicas: int, shards: int) -> Any:
    """Return a mesh of *replicas* times *shards* ranks of the group *world*, on devices of *kind*.

    Cached, since each mesh creates communicators whose memory is not released.
    """
    from torch.distributed.device_mesh import init_device_mesh

    del world
    sides = (replicas, shards) if replicas > 1 else (shards,)
    return init_device_mesh(kind, sides, mesh_dim_names=("replicas", "shards")[-len(sides) :])


def _blocks(module: Any) -> list[Any]:
    """Return the repeated blocks of *module* that have parameters: its own list, else its outermost numbered parts."""
    own = getattr(module, "blocks", None)
    if isinstance(own, list):
        return own
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        inner = any(name.startswith(f"{block}.") for block in found)
        holds = next(part.children(), None) is not None and next(part.parameters(), None) is not None
        if _BLOCK.fullmatch(name) and holds and not inner:
            found[name] = part
    return list(found.values())
