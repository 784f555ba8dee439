"""Python's garbage collector, for commands that keep what they make."""

import gc


def collect_rarely() -> None:
    """Look for cycles less often: the objects of large plans live until the end, and looking takes up to a fourth."""
    gc.set_threshold(100_000, 20, 20)
