"""All networks of the zoo as torch modules for a batch of 2; independent of the zoo's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracles import torch_dense, torch_hybrid, torch_more, torch_written  # noqa: F401  they register their networks
from tests.oracles.torch_counting import BATCH, NAMES, measure
from tests.oracles.torch_hybrid import NEMOTRON3
from tests.oracles.torch_libraries import EAGER
from tests.oracles.torch_more import DECODERS, GROK
from tests.oracles.torch_written import SIZES

__all__ = ["BATCH", "NAMES", "measure", "options"]


def options(name: str) -> Mapping[str, Any]:
    """Return the options that make the zoo build the same network."""
    decoders = {name for named in DECODERS.values() for name in named}
    return {"attention": "eager"} if name in EAGER | GROK | decoders or name in NEMOTRON3 else SIZES.get(name, {})
