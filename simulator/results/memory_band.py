"""The band of the memory that a step needs, and whether the step fits by it too."""

from __future__ import annotations

from math import exp

from simulator.bands.memory import class_of, memory_spreads
from simulator.results.training_run import TrainingRun
from simulator.step.memory import MemoryNeed
from simulator.units import format_size

UNSURE = "it fits, but not by its band"


def memory_band(result: TrainingRun, need: MemoryNeed) -> tuple[float, float] | None:
    """Return the bytes between which ``total_bytes`` of *need*, in *result*, lie with a probability of 80 %.

    None where nobody measured it: other than in the training of transformers on GPUs, with parameter servers, for
    several programs on a device, with an optimiser on the host, and for frameworks without measured memory.
    """
    step, question = result.step, result.question
    if (
        not _trains_on_gpus(result)
        or step.family != "transformer"
        or question.programs > 1
        or result.servers
        or result.offload
    ):
        return None
    spread = memory_spreads().get(class_of(step.options.framework) or "")
    return None if spread is None else (need.total_bytes * exp(spread.low), need.total_bytes * exp(spread.high))


def fits_by_band(result: TrainingRun, need: MemoryNeed) -> bool | None:
    """Return whether *need* fits even at the high end of its band; None without a band."""
    band = memory_band(result, need)
    return None if band is None else band[1] <= need.available_bytes


def all_fit_by_band(result: TrainingRun) -> bool | None:
    """Return whether the need of each device of *result* fits even at the high end of its band; None without a band."""
    found = [fits_by_band(result, device.need) for device in result.memory]
    return None if None in found else all(found)


def memory_band_words(result: TrainingRun, need: MemoryNeed) -> str:
    """Return the band of *need* in words, and that it passes the device's memory where only the prediction fits.

    Empty other than in training on GPUs.
    """
    band = memory_band(result, need)
    if band is None:
        return "80 % band not measured" if _trains_on_gpus(result) else ""
    low, high = (format_size(n_bytes, 3) for n_bytes in band)
    unit = high.rpartition(" ")[2]
    unsure = need.fits and not fits_by_band(result, need)
    return f"80 % band {low.removesuffix(' ' + unit)} to {high}" + (f": {UNSURE}" if unsure else "")


def _trains_on_gpus(result: TrainingRun) -> bool:
    return result.step.options.mode == "train" and not result.step.on_host
