"""Classes of kernels: by a GPU kernel's name, by a CPU operator's name, or from a predicted trace.

Their patterns are in ``kernel_classes.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simulator.package_data import own_data
from simulator.workload.operators import CLASSES as KERNELS

CLASSES = ("product", "convolution", "attention", "elementwise", "optimizer", "copy", "collective", "other")

_PATTERNS: Mapping[str, list[tuple[str, str]]] = own_data("validate.importing", "kernel_classes.yaml")
_NORMALISES = re.compile(r"norm|bn_(?:fw|bw)", re.IGNORECASE)


def class_of_kernel(name: str) -> str:
    """Return the class of a GPU kernel by its *name*; unmatched names, such as normalisations, count as elementwise."""
    for kind, pattern in _PATTERNS["kernels"]:
        if re.search(pattern, name[:400]) and not (kind == "convolution" and _NORMALISES.search(name[:400])):
            return kind
    return "elementwise"


def class_of_operator(name: str) -> str:
    """Return the class of a PyTorch operator on a CPU by its *name*."""
    for kind, pattern in _PATTERNS["operators"]:
        if re.search(pattern, name[:200]):
            return kind
    return "elementwise"


def class_of_prediction(told: Mapping[str, Any]) -> str:
    """Return the class of a kernel from a trace of ``simulate --trace``, by its arguments; empty for other traces."""
    if "class" in told and "bound by" in told:
        known = KERNELS.get(str(told["class"]))
        return "optimizer" if told.get("part") == "update" else known.traced if known is not None else "other"
    if "task" in told and "waits for" in told:
        return "collective" if "bytes" in told else "other"
    return ""
