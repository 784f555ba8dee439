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


@constants("libraries")
@dataclass(frozen=True, slots=True)
class LibraryCosts:
    """``young``: the excess time of kernels of a new design on its first boards, relative to mature ones.

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
