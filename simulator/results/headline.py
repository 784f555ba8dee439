"""The sentence that answers a step: rate, waits, whether it fits (docs/decisions/results.md): :func:`answer_lines`."""

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING

from simulator.results import WORDS, percent, rate_words, three_digits
from simulator.results.comparison import TIE, comparison_width, ratio_of, times_words
from simulator.results.confidence import BAND_HEAD, missed_words
from simulator.results.rates import rates_of, tflops_words
from simulator.results.step_confidence import UNSURE, fits_by_band, memory_band, memory_band_words, step_confidence
from simulator.results.step_view import MATTERS, MODE_WORDS, TIGHT, has_baseline, limit_words, link_kind, waits_of
from simulator.results.training_run import TrainingRun
from simulator.step.memory import MemoryNeed
from simulator.units import format_capacity, format_duration, format_size

if TYPE_CHECKING:
    from simulator.results.input import InputRun


def answer_lines(result: TrainingRun) -> list[str]:
    """Return the answer in a few sentences, what is at stake first; of a step that does not fit, what it lacks."""
    if not result.fits:
        return [f"{trained_words(result)} {unfit_words(result)}: {lack}" for lack in lacks(result)]
    if result.input is not None and result.input.is_slower:
        return [_input_words(result, result.input), *_fit_words(result)]
    need, fits = result.tightest.need, _fit_words(result)
    if result.changed is not None or not result.step_time_s:
        return fits
    tight = result.device_count == 1 or need.total_bytes > TIGHT * need.available_bytes
    said = [*((0 if tight else 3, words) for words in fits), (2, _achieved_words(result))]
    if result.exchanging_s:
        first = result.question.where.fabric is not None or _gains(result)
        said.append((1 if first else 2, _communication_words(result)))
    return [words for _, words in sorted(said, key=lambda each: each[0])]


def _gains(result: TrainingRun) -> bool:
    return has_baseline(result) and not result.shares and result.servers is None


def trained_words(result: TrainingRun) -> str:
    """Return what is trained: all parameters, or which of them, by which adapters on which weights."""
    step, sizes = result.step, dict(result.question.sizes)
    if step.options.mode != "train":
        return f"the {MODE_WORDS[step.options.mode]}"
    if step.trained_count == step.parameter_count:
        return f"training all {count_words(step.parameter_count)} parameters"
    weights = sizes.get("lora_weights")
    how = f" (LoRA of rank {sizes['lora']}{f' on {weights} weights' if weights else ''})" if "lora" in sizes else ""
    return f"training {count_words(step.trained_count)} of {count_words(step.parameter_count)} parameters{how}"


def count_words(number: float) -> str:
    """Return *number* with a letter for thousands to trillions: 25.6 M."""
    scales = (1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")
    scale, letter = next(((s, x) for s, x in scales if number >= s), (1.0, ""))
    return f"{number / scale:.{3 if scale > 1 else 9}g}{letter}"


def lacks(result: TrainingRun) -> Iterator[str]:
    """Yield what lacks memory, and what it needs and has: the fullest device, and the host that updates."""
    need, run = result.tightest.need, result.offload
    of = f"{'a' if result.device_count > 1 else 'the'} {'CPU' if result.step.on_host else 'GPU'}"
    found = [] if need.fits else [(of, need.total_bytes, need.available_bytes, need.missing_bytes)]
    if run is not None and not run.fits:
        found.append(("the host", run.host_bytes, run.host_available_bytes, run.host_missing_bytes))
    for of, needs, has, missing in found:
        more = percent(missing / has) if missing < TIGHT * has else format_size(missing, 3)
        over = f"{more} more than {of} has, {format_capacity(has)}"
        band = f" ({memory_band_words(result, need)})" * _may_fit(result, need)
        yield f"needs {format_size(needs, 3)}{band}, {over}"


def unfit_words(result: TrainingRun) -> str:
    """Return that *result* does not fit; only that this is likely, where the low end of its band fits."""
    return "likely does not fit" if _may_fit(result, result.tightest.need) else "does not fit"


def _may_fit(result: TrainingRun, need: MemoryNeed) -> bool:
    band = None if need.fits else memory_band(result, need.total_bytes)
    return band is not None and band[0] <= need.available_bytes


def _fit_words(result: TrainingRun) -> list[str]:
    need = result.tightest.need
    if not isfinite(need.available_bytes):
        return []
    of, unlike = "CPU" if result.step.on_host else "GPU", len({device.need.total_bytes for device in result.memory}) > 1
    needs = f"fits: {format_size(need.total_bytes, 3)} of {format_capacity(need.available_bytes)}"
    if result.device_count == 1:
        return ["; ".join(filter(None, (f"{trained_words(result)} {needs}", memory_band_words(result, need))))]
    said = f"{needs} {'on the fullest' if unlike else 'per'} {of}"
    total = sum(device.count * device.need.total_bytes for device in result.memory)
    unsure = f" ({UNSURE})" * (fits_by_band(result, need) is False)
    return [f"{said}, {format_size(total, 3)} in all{unsure}"]


def _achieved_words(result: TrainingRun) -> str:
    rates, step, confidence = rates_of(result), result.step, step_confidence(result)
    each = f" per {'device' if step.on_host else 'GPU'}" if result.device_count > 1 else ""
    if result.device_count > 1 and result.tokens:
        rate, words = rates.model_flops_per_s_per_device / 1e12, f"{tflops_words(rates)} model TFLOP/s"
        shown = three_digits
    else:
        rate = rates.tokens_per_s_per_device or rates.samples_per_s_per_device
        words, shown = f"{rate_words(rate)} {'tokens' if result.tokens else step.sample}/s", rate_words
    words += each
    if confidence.band is not None:
        low, high = confidence.band.of_rate(result.step_time_s, rate)
        words += f" ({BAND_HEAD} {shown(low)} to {shown(high)})"
        words += missed_words("steps", result.step_time_s, confidence.band)
    elif not confidence.is_exact:
        words += f" ({BAND_HEAD} not measured)"
    return f"expect {words}" if result.device_count > 1 else f"{words}, bound by {limit_words(result)}"


def _communication_words(result: TrainingRun) -> str:
    whole_s, exposed_s, links = result.step_time_s, result.exposed_s, over_words(result).removeprefix(" over ")
    share, exposed = percent(exposed_s / whole_s), f"({format_duration(exposed_s, 3)}; band not measured)"
    cost = f"communication{over_words(result)} costs {share} of the step {exposed}"
    if result.question.where.fabric is not None and links:
        enough = exposed_s < MATTERS * whole_s
        share += f" of the step, {'less' if enough else 'more'} than {100 * MATTERS:.0f} %"
        cost = f"{links} {'is enough' if enough else 'holds the step up'}: communication costs {share} {exposed}"
    if _gains(result):
        several = f"{result.device_count:,} {'devices' if result.step.on_host else 'GPUs'}"
        width = comparison_width(step_confidence(result).estimate)
        alone = width and width._replace(network=0.0)
        ratio = ratio_of(result.device_count * result.scaling_efficiency, 1.0, (alone, width))
        one, lost_s = "an average one" if len(result.parts) > 1 else "one", whole_s - result.alone_s
        work = f"{several} do {times_words(ratio.value)} times the work of {one}{ratio.band}"
        most, most_s = _other_loss(result, lost_s)
        if lost_s > TIE * whole_s and exposed_s < most_s <= lost_s and most:
            return f"{work}; {100 * most_s / lost_s:.0f} % of the loss is {most}; {cost}"
        if 0 < exposed_s <= lost_s:
            lost = f"{100 * exposed_s / lost_s:.0f} % of the loss is"
            cost = f"{lost} communication{over_words(result)}, {share} of the step {exposed}"
        return f"{work}; {cost}"
    return cost


def _other_loss(result: TrainingRun, lost_s: float) -> tuple[str, float]:
    """Return what most of *lost_s* besides communication is, and its seconds: a wait, or longer kernels, if known."""
    waits_s = {name: share * result.step_time_s for name, share in waits_of(result).items()}
    rest_s, host_s, layout = lost_s - sum(waits_s.values()), waits_s.pop("host", 0.0), result.question.layout
    rest_s += host_s  # one alone waits for it, too
    words = f"waiting for {result.step.part}" if len(result.parts) > 1 else WORDS["knees"]["computing"]
    others = layout.divides_network or layout.sync_bn or layout.process != "each" or result.offload
    if others or host_s > rest_s:
        words = ""  # smaller kernels, other kernels, copies or launches
    waited = {f"waiting for {WORDS['waits'][name]}": s for name, s in waits_s.items() if name != "exposed"}
    return max([*waited.items(), (words, rest_s)], key=lambda part: part[1])


def over_words(result: TrainingRun) -> str:
    """Return " over" and the kind of the links over which devices communicate; empty where none limits that."""
    use = result.bottleneck
    return f" over {link_kind(result.timeline.machine, use)}" if use is not None else ""


def _input_words(result: TrainingRun, run: "InputRun") -> str:
    rates = {name: f"{rate_words(result.samples / s)} {result.step.sample}/s" for name, s in run.limits_s.items()}
    workers = "decoders" if "decoders" in rates else "loaders" if "loaders" in rates else ""
    said = f"{WORDS['input'][run.bound]} limits training to {rates.pop(run.bound)}"
    if workers and workers in rates:
        said += f": more workers do not help, the current ones can decode {rates.pop(workers)}"
    elif run.bound in ("decoders", "loaders", "readers"):
        said += ": more workers help"
    others = ", ".join(f"{WORDS['input'][name]} {rate}" for name, rate in [*rates.items()][:2])
    return f"{said}; the other stages are faster: {others}" if others else said
