"""A simulator of machines for training neural networks."""

__version__ = "0.1.0"
