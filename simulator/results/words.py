"""What readers get to read for the names that the code uses."""

from __future__ import annotations

__all__ = ["BOUND_WORDS", "FORMAT_WORDS", "KIND_WORDS", "MODE_WORDS"]

KIND_WORDS = {
    "gemm": "matrix products",
    "convolution": "convolutions",
    "streaming": "elementwise, copies",
    "rowwise": "normalisation, softmax",
    "pooling": "pooling",
    "gather": "embeddings",
    "recurrence": "recurrent layers",
    "fusedattention": "fused attention",
}
BOUND_WORDS = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "latency": "latency of short kernels",
    "host": "the host: it issues slower than the device computes",
}
MODE_WORDS = {
    "train": "training step",
    "inference": "inference step",
    "forward": "forward pass",
    "backward": "backward pass",
}
FORMAT_WORDS = {"fp32": "fp32", "tf32": "TF32", "half": "half precision"}
