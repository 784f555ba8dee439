"""Estimates from a processor's flags, and the built-in part nearest to a processor."""

from __future__ import annotations

import math
from collections.abc import Collection

from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import CpuPart
from validate.machine.describe.processor import Processor
from validate.machine.measure.host import slug

# Processor designs by family and model (Intel: Linux, arch/x86/include/asm/intel-family.h; AMD: util-linux and
# WikiChip).
_INTEL = {
    45: "Sandy Bridge",
    62: "Ivy Bridge",
    63: "Haswell",
    79: "Broadwell",
    85: "Skylake-SP",
    106: "Ice Lake",
    108: "Ice Lake",
    143: "Sapphire Rapids",
    207: "Emerald Rapids",
}
_INTEL_FAMILY = 6
_CASCADE_LAKE = 5  # first stepping of Skylake-SP's model number that is Cascade Lake
_AMD = {  # keys: family, first and last model
    (23, 0x30, 0x3F): "Rome",
    (25, 0x00, 0x0F): "Milan",
    (25, 0x10, 0x1F): "Genoa",
    (25, 0xA0, 0xAF): "Genoa",
    (26, 0x00, 0x1F): "Turin",
}
_ZEN_5 = 26  # first AMD family that executes 512-bit vectors whole
_DESKTOPS = frozenset(("ryzen", "athlon", "pentium", "celeron", "threadripper", "apple"))
_DESKTOP, _SERVER = "generic-desktop-cpu", "generic-server-cpu"
_NO_PATTERN = frozenset((_DESKTOP, _SERVER, "knl-7250-cpu"))  # not real products, or no host processor
_MANY_CORES = 10  # an unknown processor with fewer cores is taken for a desktop's


def vector_bits(flags: Collection[str]) -> int | None:
    """Return the width of a vector register in bits, by *flags*; None where they name no vector extension."""
    if "avx512f" in flags:
        return 512
    if "avx" in flags:
        return 256
    return 128 if "sse2" in flags or "asimd" in flags else None


def flop_per_cycle(vendor: str, family: int, flags: Collection[str]) -> dict[str, int]:
    """Return the FLOPs per cycle of one core by precision, as usual for cores with such flags.

    Assumes two vector units, fused where there is ``fma``.  AMD splits 512-bit vectors in halves before Zen 5.
    """
    bits = vector_bits(flags)
    if bits is None:
        return {}
    if "asimd" in flags:
        fp32 = 32 if "sve" in flags else 16
        found = {"fp64": fp32 // 2, "fp32": fp32}
        return found | ({"bf16": 2 * fp32} if "bf16" in flags else {})
    if bits == 512 and vendor == "amd" and family < _ZEN_5:
        bits = 256
    fp32 = 2 * bits // 32 * (2 if "fma" in flags else 1)
    found = {"fp64": fp32 // 2, "fp32": fp32}
    if "avx512_fp16" in flags:
        found["fp16"] = 2 * fp32
    if "amx_bf16" in flags:
        found["bf16"] = 16 * fp32
    elif "avx512_bf16" in flags:
        found["bf16"] = 2 * fp32
    if "amx_int8" in flags:
        found["int8"] = 32 * fp32
    elif "avx512_vnni" in flags:
        found["int8"] = 4 * fp32
    return found


def designs(vendor: str, family: int, model: int) -> tuple[str, ...]:
    """Return the designs of server processors with these numbers of the *vendor*; two where they share a number."""
    if vendor == "intel" and family == _INTEL_FAMILY and model in _INTEL:
        return (_INTEL[model], "Cascade Lake") if _INTEL[model] == "Skylake-SP" else (_INTEL[model],)
    if vendor != "amd":
        return ()
    return tuple(name for (of, low, high), name in _AMD.items() if family == of and low <= model <= high)


def architecture(processor: Processor) -> str:
    """Return the design of a server's *processor*, by vendor, family, model and stepping; empty where unknown."""
    found = designs(processor.vendor, processor.family, processor.model_number)
    return found[-1 if processor.stepping >= _CASCADE_LAKE else 0] if found else ""


def nearest_cpu(processor: Processor) -> str:
    """Return the built-in CPU part nearest to *processor*: by design, then vector width, family and core count.

    A guest's core count says nothing of its chip: where its design is known, the largest part of it is taken.
    """
    words = slug(processor.model).split("-")
    if _DESKTOPS.intersection(words) or (processor.vendor == "intel" and "core" in words):
        return _DESKTOP
    wide, design = vector_bits(processor.flags), architecture(processor)
    families = {name: family for (family, _, _), name in _AMD.items()}
    found = []
    for name in part_names("cpu"):
        part = load_part(name)
        assert isinstance(part, CpuPart)
        if part.vendor != processor.vendor or name in _NO_PATTERN:
            continue
        ratio = abs(math.log((part.core_count or 1) / processor.cores))
        if processor.is_guest and design:
            ratio = -float(part.core_count or 1)
        another = bool(design) and part.architecture != design
        of_family = families.get(part.architecture, processor.family) == processor.family
        found.append((another, part.vector_bits != wide, not of_family, round(ratio, 6), name))
    if found and processor.vendor != "other":
        return min(found)[-1]
    return _SERVER if processor.cores * processor.sockets >= _MANY_CORES else _DESKTOP
