"""Gradients of well-known networks: how many bytes a data-parallel step exchanges."""

from __future__ import annotations

__all__ = ["FP32_BYTES", "PARAMETERS"]

FP32_BYTES = 4
# torchvision's documentation of each model, "num_params".
PARAMETERS: dict[str, int] = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
}
