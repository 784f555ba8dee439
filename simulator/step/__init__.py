"""A training or inference step on one device: its launches, its kernels, its memory."""
