"""What the age of kernel libraries changes: young ones take longer for products, convolutions and recurrent layers.

A new way to feed tensor cores needs new kernels, which cuBLAS and cuDNN improve for years.  ResNet-50 on an A100 in
mixed precision was 16 % faster with the libraries of September 2022 than with those of October 2020
(docs/decisions/steps.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from simulator.constants import Constants, constants
from simulator.questions.where import Month

__all__ = ["LibraryCosts", "any_shape_on_tensor_cores", "library_factor"]

_AMPERE: Month = (2020, 5)
_ANY_SHAPE: Month = (2020, 7)  # cuBLAS 11.1 of CUDA 11.0, cuDNN 8.0


@constants("libraries")
@dataclass(frozen=True, slots=True)
class LibraryCosts:
    """``young``: what kernels of a new design take longer on its first boards, relative to mature ones.

    This excess falls by a factor e in ``settles_years``.
    """

    young: float
    settles_years: float


def library_factor(known: Constants, since: Month | None, libraries: Month | None) -> float:
    """Return the time of library kernels relative to mature ones, for *libraries* of that month.

    *since* is the month of the first boards that run kernels of this design; libraries from before count as of that
    month.  1 where either is None: mature libraries, or a design of which nothing is known.
    """
    if since is None or libraries is None:
        return 1.0
    costs = known(LibraryCosts)
    years = libraries[0] - since[0] + (libraries[1] - since[1]) / 12.0
    return 1.0 + costs.young * exp(-max(0.0, years) / costs.settles_years)


def any_shape_on_tensor_cores(since: Month | None, libraries: Month | None) -> bool:
    """Return whether libraries of that month run every shape on tensor cores; parameters as for :func:`library_factor`.

    cuBLAS before 11 takes only matrices whose rows are whole pieces of 16 bytes (cuBLAS documentation of 10.2, "Tensor
    core usage"; NVIDIA, "Matrix multiplication background", table of requirements by version).  No algorithm of cuDNN 7
    takes dilated convolutions, says NVIDIA's engineer in https://github.com/chainer/chainer/pull/4064 (December 2017).
    cuBLAS 11 and cuDNN 8 were both released in July 2020, and are the first with kernels for Ampere.
    """
    return since is None or libraries is None or since >= _AMPERE or libraries >= _ANY_SHAPE
