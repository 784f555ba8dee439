"""The input pipeline of a step, from storage to the devices: :class:`InputQuestion`."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from simulator.questions.checks import Checked, From
from simulator.records import dataclass

Decoder = Literal["jpeg", "none"]
Cache = Literal["none", "memory"]
Held = Literal["images", "sequences", ""]
HELD: tuple[Held, ...] = ("images", "sequences")
_SAMPLES = From(0, 10**12)
_FEW = From(1, 64)
MEMORY = "memory"  # instead of a disk: all samples are in memory from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class InputQuestion(Checked):
    """A data set, its disks, and the loader of each process that feeds devices.

    - ``name``: of the data set; ``samples``: how many it has, 0 where that is not known.
    - ``sample_bytes``: of one as it is stored, on average; ``pixels``: of a stored image, 0 where that is not known.
    - ``holds``: images or sequences, empty where that is not known; ``decode``: ``none`` if stored as they are used.
    - ``sample_s``: seconds in which a core decodes and augments one; None: the model's.
    - ``block_bytes``: of what is read at once of large files; 0: each sample is a file.
    - ``disks``: names in the machine, or ``memory``; empty: its first disk.  ``cache``: where samples stay once read.
    - ``workers``: loading processes for each process that feeds devices; 0: that one loads.
    - ``prefetch``: batches that each worker may be ahead; ``ahead``: batches that wait on the device, 0: none.
    - ``shuffle``: samples are read in random order; ``augment``: images are cropped at random and resized.
    - ``epochs``: how often the set is read; ``evaluate``: samples evaluated on one device after each, 0: none.
    - ``pinned``: batches are copied through page-locked memory while the device computes.
    - ``batch_s``: seconds that the loop takes the host in each step besides.
    - ``steps_under_way``: steps begun and not ended; 1: the host waits for each.

    Raises InputError if fields do not go together.
    """

    faults_of: ClassVar[str] = "input"

    name: str
    sample_bytes: float
    samples: Annotated[int, _SAMPLES] = 0
    holds: Held = ""
    pixels: Annotated[float, From(0)] = 0.0
    decode: Decoder = "none"
    sample_s: Annotated[float, From(0)] | None = None
    block_bytes: Annotated[float, From(0)] = 0.0
    disks: tuple[str, ...] = ()
    workers: Annotated[int, From(0, 64)] = 4
    prefetch: Annotated[int, _FEW] = 2
    shuffle: bool = True
    cache: Cache = "none"
    epochs: Annotated[int, From(1, 100_000)] = 1
    augment: bool = True
    pinned: bool = True
    ahead: Annotated[int, From(0, 64)] = 1
    batch_s: Annotated[float, From(0)] = 0.0
    steps_under_way: Annotated[int, _FEW] = 2
    evaluate: Annotated[int, _SAMPLES] = 0

    def _faults(self) -> Iterator[str]:
        if not self.sample_bytes > 0.0:
            yield "a sample has more than zero bytes"
        if self.decode == "jpeg" and not self.pixels and self.sample_s is None:
            yield "decode: jpeg needs pixels, for example 469x387, or sample_time"
        if self.pixels and self.holds == "sequences":
            yield "pixels apply to images; this set holds sequences"
        if self.epochs > 1 and not self.samples:
            yield "epochs needs samples, the size of the set"
        if self.cache == "memory" and not self.samples:
            yield "cache: memory needs samples, the size of the set"
        if not self.pinned and self.ahead:
            yield "ahead needs pinned: a copy from pageable memory waits"

    @property
    def set_bytes(self) -> float:
        """Bytes of the whole data set."""
        return self.samples * self.sample_bytes
