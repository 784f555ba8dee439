"""The units in which runs are compared: tokens per second, TFLOP/s, MFU, HFU, price, energy (:func:`rates_of`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.bands.composition import Band
from simulator.questions.options import StepOptions
from simulator.records import dataclass
from simulator.results import Fact, percent, rate_words, three_digits
from simulator.results.step import StepResult
from simulator.results.training_run import TrainingRun
from simulator.step.recompute import reruns_of
from simulator.topology.schema import Price
from simulator.training.schedules import passing_each
from simulator.workload.backward import needs_gradient
from simulator.workload.network import Layer, Network, once
from simulator.workload.operators import Attention, MatMul, Softmax

TRILLION = 1e12


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of a step over all its devices.

    ``model_flops_per_s_per_device`` counts FLOPs as Megatron-LM's log does (``num_floating_point_operations`` in
    megatron/training/training.py): products alone, the backward pass as two forward passes, half the scores of causal
    attention, nothing that runs again.  Unlike it, it leaves out gradients that nothing trained needs: of frozen
    weights, and of what comes before all that is trained.  ``mfu`` is its share of the devices' mean peak, ``hfu`` that
    with what runs again.  ``energy_J`` is that of a step with every board at its power limit, so the boards use no
    more; None if a part has no such figure.  Figures of tokens are None for networks without tokens.
    """

    samples_per_s_per_device: float
    tokens_per_s: float | None
    tokens_per_s_per_device: float | None
    model_flops_per_s_per_device: float
    mfu: float
    hfu: float
    days_per_trillion_tokens: float | None
    price_per_million_tokens: Price | None
    energy_J: float | None
    energy_J_per_token: float | None


def rates_of(result: TrainingRun) -> Rates:
    """Return the rates of *result*; those of a run with parameter servers are of the steady state."""
    count, tokens = result.device_count, result.tokens
    steps_per_s = result.throughput / result.samples if result.samples else 0.0
    model, again = _flop(result)
    each = steps_per_s / count
    peak = sum(device.count * device.peak_flops_per_s for device in result.memory) / count or 1.0
    tokens_per_s = steps_per_s * tokens if tokens else None
    price = result.price_per_hour
    million = None if price is None or not tokens_per_s else price.times(1e6 / 3600.0 / tokens_per_s)
    machine = result.timeline.machine
    powers = {node.part_name: getattr(node.part, "board_power", None) for node in machine.unlike(machine.gpus)}
    watts = [None if (power := powers.get(part)) is None else n * power for part, n in result.parts.items()]
    energy = None if None in watts else sum(watt for watt in watts if watt is not None) * result.step_time_s
    return Rates(
        samples_per_s_per_device=result.throughput / count,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=None if tokens_per_s is None else tokens_per_s / count,
        model_flops_per_s_per_device=model * each,
        mfu=model * each / peak,
        hfu=(model + again) * each / peak,
        days_per_trillion_tokens=TRILLION / tokens_per_s / 86_400.0 if tokens_per_s else None,
        price_per_million_tokens=million,
        energy_J=energy,
        energy_J_per_token=energy / tokens if energy is not None and tokens else None,
    )


def rates_from(data: Mapping[str, Any]) -> Rates:
    """Return the rates that :func:`simulator.results.plain` has written as *data*."""
    price = data["price_per_million_tokens"]
    return Rates(**{**data, "price_per_million_tokens": None if price is None else Price(**price)})


def rate_of_device(rates: Rates, step: StepResult, shares: Sequence[float] = ()) -> str:
    """Return the rates of one device in words: 3,512 tokens/s, 402 model TFLOP/s, MFU 40.7 %.

    *shares* are those of the FLOP/s at the ends of the band.
    """
    used = f"MFU {percent(rates.mfu)}"
    if rates.tokens_per_s_per_device is None:
        return f"{rate_words(rates.samples_per_s_per_device)} {step.sample}/s, {used}"
    low, *_, high = [tflops_words(rates, share) for share in shares] or ["", ""]
    flops = f"{tflops_words(rates)} model TFLOP/s{f' ({low} to {high})' if shares else ''}"
    return f"{rate_words(rates.tokens_per_s_per_device)} tokens/s, {flops}, {used}"


def tflops_words(rates: Rates, share: float = 1.0) -> str:
    """Return this *share* of the TFLOP/s of a device, with three digits."""
    return three_digits(share * rates.model_flops_per_s_per_device / 1e12)


def days_words(days: float) -> str:
    """Return *days* with three digits; those of less than one in hours."""
    return f"{three_digits(days)} days" if days >= 1 else f"{24 * days:.3g} h"


def energy_words(joules: float) -> str:
    """Return *joules* in the largest unit of which there is one: kWh from 0.01 on, else J."""
    kwh = joules / 3.6e6
    return f"{three_digits(kwh)} kWh" if kwh >= 0.01 else f"{joules:.3g} J"


def _flop(result: TrainingRun) -> tuple[float, float]:
    """Return the FLOPs of all devices in a step, and those of what runs again."""
    step, question = result.step, result.question
    times = passing_each(question.layout, step.micro_batches) * question.programs
    options, network = step.options, step.network
    if result.shares or any(device.network is None for device in result.memory):
        scale = result.samples / (network.samples or 1) if result.shares else result.device_count * times
        parts = [(scale, network)]
    else:
        parts = [(device.count * times, device.network or network) for device in result.memory]
    found = [(n, *_of_network(of, options)) for n, of in parts]
    return sum(n * model for n, model, _ in found), sum(n * again for n, _, again in found)


@once
def _of_network(network: Network, options: StepOptions) -> tuple[float, float]:
    """Return the FLOPs of one pass of *network* over a micro-batch, and of what runs again in it."""
    causal = any(isinstance(each.operator, Attention) and each.operator.causal for each in network.layers)
    causal |= any(isinstance(each.operator, Softmax) and each.operator.kernel == "causal" for each in network.layers)
    model = sum(passes * _counted(layer, causal) for layer, passes in _passes(network, options))
    again = [network.layers[place] for rerun in reruns_of(network, options) for place in rerun.layers]
    return model, sum(_counted(layer, causal) for layer in again)


def _passes(network: Network, options: StepOptions) -> Iterator[tuple[Layer, int]]:
    """Yield each layer with the forward passes that its products count as; two are a whole backward pass."""
    needed = needs_gradient(network)
    for layer in network.layers:
        is_frozen = bool(layer.parameters) and not layer.trained
        back = 2 - is_frozen if options.has_backward and needed[layer.output] else 0
        yield layer, back + (options.mode != "backward")


def _counted(layer: Layer, causal: bool) -> float:
    """Return the FLOPs of *layer*'s forward pass, of causal attention the half below the diagonal."""
    operator = layer.operator
    halved = operator.causal if isinstance(operator, Attention) else causal and isinstance(operator, MatMul)
    return operator.flop / 2 if halved else float(operator.flop)


def rate_facts(result: TrainingRun, band: Band | None = None) -> Iterator[Fact]:
    """Yield the rates of *result*, whose time has this *band*; those of one device without tokens stand elsewhere."""
    rates, step, several = rates_of(result), result.step, result.device_count > 1
    if several or result.tokens:
        shares = () if band is None else (result.step_time_s / band.high_s, result.step_time_s / band.low_s)
        each = "per device" if step.on_host else "per GPU"
        yield Fact(each if several else "rate", rate_of_device(rates, step, shares))
        yield Fact("HFU", "with what runs again", percent(rates.hfu), detail=True)
    is_whole = result.question.options.mode == "train" and step.trained_count == step.parameter_count
    if rates.days_per_trillion_tokens is not None and is_whole:
        said = [days_words(rates.days_per_trillion_tokens)]
        if rates.price_per_million_tokens is not None:
            said.append(f"{rates.price_per_million_tokens.words()} for a million")
        if rates.energy_J_per_token is not None:
            said.append(f"GPU energy at most {energy_words(TRILLION * rates.energy_J_per_token)}")
        yield Fact("1T tokens", "; ".join(said))
