"""Where the samples of a step come from, and how they get to its devices: :class:`InputQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["CACHES", "DECODERS", "HELD", "MEMORY", "Decoder", "Held", "InputQuestion"]

Decoder = Literal["jpeg", "none"]
DECODERS: tuple[Decoder, ...] = get_args(Decoder)
Cache = Literal["none", "memory"]
Held = Literal["images", "sequences", ""]
HELD: tuple[Held, ...] = ("images", "sequences")
CACHES: tuple[Cache, ...] = get_args(Cache)
MEMORY = "memory"  # in place of a disk: all samples lie in memory from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class InputQuestion:
    """A data set, the disks it lies on, and the loader of each process that feeds devices.

    Parameters
    ----------
    name : str
        What the set is called.
    sample_bytes : float
        One sample as it is stored, on average.
    samples : int
        Samples of the set; 0: not said.
    holds : str
        ``images`` or ``sequences``; empty: not said.
    pixels : float
        Of a stored image; 0: it is no image.
    decode : str
        ``jpeg``, or ``none``: stored as it is used.
    sample_s : float, optional
        What decoding and augmenting a sample take a core, in place of what the model says.
    block_bytes : float
        Samples are packed into large files and read in such blocks; 0: each has a file of its own.
    disks : tuple of str
        Devices of the machine among which the set is spread; none: its first disk; ``memory``: no disk.
    workers : int
        Processes that load, for each process that feeds devices; 0: that process itself.
    prefetch : int
        Batches that a worker may be ahead.
    shuffle : bool
        Samples are read in random order, of packed files block by block; otherwise as they lie.
    cache : str
        ``memory``: what was read stays in the host's memory as far as there is room.
    epochs : int
        How often the set is read; the first time nothing is in memory.
    augment : bool
        Images are cropped at random and resized.
    pinned : bool
        Batches are copied to page-locked memory, and from there to the device while it computes.
    ahead : int
        Batches that wait on the device.
    batch_s : float
        What the loop takes the host each step besides: metrics, logs, splitting the batch.
    steps_under_way : int
        Steps that may have begun and not ended; 1: the host waits for the end of each.
    evaluate : int
        Samples on which the first device alone evaluates after each epoch.
    """

    name: str
    sample_bytes: float
    samples: int = 0
    holds: Held = ""
    pixels: float = 0.0
    decode: Decoder = "none"
    sample_s: float | None = None
    block_bytes: float = 0.0
    disks: tuple[str, ...] = ()
    workers: int = 4
    prefetch: int = 2
    shuffle: bool = True
    cache: Cache = "none"
    epochs: int = 1
    augment: bool = True
    pinned: bool = True
    ahead: int = 1
    batch_s: float = 0.0
    steps_under_way: int = 2
    evaluate: int = 0

    @property
    def set_bytes(self) -> float:
        """Bytes of the whole set."""
        return self.samples * self.sample_bytes
