"""Libraries of CPU kernels: how a framework divides work among threads, and which instructions it was compiled for.

- ``onednn``: frameworks since 2018.  Convolutions are direct, and passes over memory use vectors and all threads.
- ``blas``: Caffe.  Only products are parallel.  Each image is unrolled by one thread, then multiplied by all
  (``base_conv_layer.cpp``, ``im2col.cpp``, ``math_functions.cpp``).
- ``torch7``: as ``blas``, but the forward pass and the gradient of images give whole images to threads, each of which
  unrolls and multiplies alone; the gradient of filters goes from image to image and keeps what was unrolled
  (``THNN/generic/SpatialConvolutionMM.c``).
- ``mshadow``: MXNet.  Its passes, unrolling among them, are expressions that one thread evaluates element by element
  (``MapPlan`` in ``mshadow/tensor_cpu-inl.h``, from which OpenMP was taken out).
- ``cntk``: one thread unrolls all images, which are then multiplied at once (``ConvolutionEngine.cpp``, the GEMM
  engine).
- ``eigen``: TensorFlow.  Everything runs on all threads.  Packages before 1.6 were compiled for SSE alone, without AVX
  and fused multiply-adds (TensorFlow 1.6.0, release notes).
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from simulator.constants import Constants, constants
from simulator.questions.where import CpuLibrary
from simulator.records import dataclass


class Library(NamedTuple):
    """How a library works.

    ``convolves``: directly; image by image (``image``); images on different threads (``images``); or all images at
    once (``batch``).  ``vectors``: passes use vector instructions.  ``threads``: passes use all threads.  ``bits``: the
    widest vectors; 0: the device's.  ``reads``: one more thread reads data.  ``jumps``: matrices are packed across
    their rows.  ``composes``: normalisation is written as several passes.
    """

    convolves: Literal["direct", "image", "images", "batch"]
    vectors: bool
    threads: bool
    bits: int = 0
    reads: bool = True
    jumps: bool = False
    composes: bool = False


LIBRARIES: dict[CpuLibrary, Library] = {
    "onednn": Library("direct", vectors=True, threads=True, reads=False),
    "blas": Library("image", vectors=False, threads=False),
    "torch7": Library("images", vectors=False, threads=False),
    "mshadow": Library("image", vectors=False, threads=False),
    "cntk": Library("batch", vectors=False, threads=False),
    "eigen": Library("batch", vectors=True, threads=True, bits=128, jumps=True, composes=True),
}


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a library, in cycles of one core for each element.

    ``packed``: of a matrix that is copied before it is multiplied.  ``unrolled``: of a window that is written out or
    added up.  ``row``: of a pass without vectors that needs a figure of its row, such as a mean.
    """

    packed: float
    unrolled: float
    row: float


@dataclass(frozen=True, slots=True)
class ScalarRates(Rates):
    """Rates of a library whose passes use no vectors: of a simple pass, and of one that calls the C library."""

    simple: float
    function: float


@constants("cpu_libraries")
@dataclass(frozen=True, slots=True)
class LibraryRates:
    """Constants of libraries other than oneDNN, the same for all CPUs."""

    PARTS: ClassVar = {**dict.fromkeys(("blas", "torch7", "mshadow", "cntk"), ScalarRates), "eigen": Rates}
    blas: ScalarRates
    torch7: ScalarRates
    mshadow: ScalarRates
    cntk: ScalarRates
    eigen: Rates


def rates_of(known: Constants, library: CpuLibrary) -> Rates:
    """Return the rates of *library*, which is not oneDNN."""
    found: Rates = getattr(known(LibraryRates), library)
    return found


def scalar_rates_of(known: Constants, library: CpuLibrary) -> ScalarRates:
    """Return the rates of *library*, whose passes use no vectors."""
    found = rates_of(known, library)
    assert isinstance(found, ScalarRates)
    return found
