"""Precision policies: the number format in which each operator computes (docs/decisions/step-models.md)."""

from collections.abc import Iterable

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.questions.options import QUANTISED, Mode, Policy, StepOptions
from simulator.topology.catalogue import gpus_with
from simulator.workload.operators import Linear, Operator
from simulator.workload.precision import ELEMENT_BYTES, PACKED, Precision

_AUTOCAST: dict[Policy, Precision] = {"amp-fp16": "fp16", "amp-bf16": "bf16"}
_HALF: dict[Policy, Precision] = {**_AUTOCAST, "graph-fp16": "fp16", "graph-bf16": "bf16"}
_MASTER: dict[Policy, Precision] = {"master-fp16": "fp16", "master-bf16": "bf16", "master-fp8": "bf16", "nvfp4": "bf16"}


def precision_of(policy: Policy, operator: Operator, device: Device) -> Precision:
    """Return the number format in which *operator* computes; with autocast, the narrowest that it may get."""
    if policy in _HALF:
        return "fp32" if operator.fp32_in_mixed else _HALF[policy]
    if policy in QUANTISED:
        if operator.quantised:
            return policy  # type: ignore[return-value]
        if not operator.fp32_in_mixed and not operator.is_product:
            return "int8"
        found = half_policy([device], "inference")  # in floating point
        return "fp32" if found == "torch" else found  # type: ignore[return-value]
    if policy == "master-fp8" and operator.narrow and isinstance(device, Gpu) and "fp8" in device.peak_flops_per_s:
        return "fp8"
    if policy == "nvfp4" and operator.narrow:
        if "nvfp4" not in device.peak_flops_per_s:
            raise InputError(f"{device.name}: has no products in nvfp4; {', '.join(gpus_with('nvfp4'))} have")
        return "nvfp4"
    if policy in _MASTER:
        return "fp32" if operator.fp32_always else _MASTER[policy]
    if policy == "tf32":
        return "tf32" if operator.is_product else "fp32"
    if policy == "torch":
        has_tf32 = isinstance(device, Gpu) and "tf32" in device.peak_flops_per_s
        return "tf32" if has_tf32 and operator.torch_tf32 else "fp32"
    plain: Precision = policy  # type: ignore[assignment]
    return plain


def weight_bytes(policy: Policy) -> float:
    """Return the bytes of a weight in the format of the products."""
    return ELEMENT_BYTES["int4"] / PACKED if policy == "int4" else float(ELEMENT_BYTES[storage_of(policy)])


def storage_of(policy: Policy) -> Precision:
    """Return the number format of activations in memory."""
    if policy in _HALF:
        return _HALF[policy]
    if policy in _MASTER:
        return _MASTER[policy]
    if policy in QUANTISED:
        return "int8"
    return "fp32" if policy in ("tf32", "torch") else policy  # type: ignore[return-value]


def casts(policy: Policy) -> bool:
    """Return whether parameters are kept in fp32 and cast before use."""
    return policy in _HALF


def autocasts(policy: Policy) -> bool:
    """Return whether each operator casts its inputs, so that formats propagate from operator to operator."""
    return policy in _AUTOCAST


def has_master(policy: Policy) -> bool:
    """Return whether the optimiser updates an fp32 copy of the parameters, then casts it to half precision."""
    return policy in _MASTER


def is_plain_half(policy: Policy) -> bool:
    """Return whether parameters and the optimiser's states too are in 16 bits alone."""
    return policy in ("fp16", "bf16")


def parameter_bytes(policy: Policy) -> int:
    """Return the bytes of a trained parameter in each replica, of gradients, and of what ranks send each other."""
    return ELEMENT_BYTES["fp32" if casts(policy) else storage_of(policy)]


def gradient_bytes(options: StepOptions, *, sums_in_fp32: bool = False) -> int:
    """Return the bytes per element of exchanged gradients."""
    return ELEMENT_BYTES["fp32"] if sums_in_fp32 else parameter_bytes(options.precision)


def gathered_bytes(policy: Policy, trained: int, count: int, *, in_fp32: bool) -> float:
    """Return the bytes of an element of *count* gathered; *in_fp32*: autocast casts the *trained* afterwards."""
    stored = ELEMENT_BYTES[storage_of(policy)]
    return stored + (ELEMENT_BYTES["fp32"] - stored) * trained / max(1, count) if in_fp32 else float(stored)


def updated_bytes(policy: Policy) -> int:
    """Return the bytes of an element of the parameters that the optimiser updates."""
    return ELEMENT_BYTES["fp32" if casts(policy) or has_master(policy) else storage_of(policy)]


def scales(policy: Policy) -> bool:
    """Return whether the loss is scaled, because fp16 gradients have few exponent bits."""
    return policy in ("amp-fp16", "graph-fp16", "master-fp16")


def half_policy(devices: Iterable[Device], mode: Mode) -> Policy:
    """Return the half precision that speeds up all *devices*, in training autocast; ``torch`` if none does."""
    peaks = [device.peak_flops_per_s for device in devices]
    for half in ("bf16", "fp16"):
        if all(peak.get(half, 0.0) > peak.get("fp32", 0.0) for peak in peaks):
            return half if mode == "inference" else f"amp-{half}"  # type: ignore[return-value]
    return "torch"


def product_precision(policy: Policy, device: Device) -> Precision:
    """Return the number format of matrix products, which have most of the FLOPs."""
    return precision_of(policy, Linear(1, 1, 1), device)
