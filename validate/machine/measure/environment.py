"""Facts about the machine, stored with every set of measurements to help interpret it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.host import caches, cpu_facts, nvidia_smi, usable_threads

SAME = ("device", "driver", "torch", "cuda", "threads", "cores", "power_limit_W", "mig")
"""Facts that two runs must share to put their rows in one table."""

_MIG = ("--query-gpu=mig.mode.current", "--format=csv,noheader")


def environment(bench: Bench) -> dict[str, Any]:
    """Return the facts about the machine that may explain a result, without anything that identifies its owner.

    Serial numbers, host and user names, addresses and paths are omitted.
    """
    facts: dict[str, Any] = {
        "device": bench.name,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "memory_bytes": _total_memory(),
        "variables": _variables(),
    }
    if bench.is_cuda:
        facts |= _gpu(bench)
        facts |= {"power_limit_W": facts["gpu"].get("power_limit_W"), "mig": nvidia_smi(*_MIG)}
    else:
        facts |= {"threads": torch.get_num_threads(), "cores": facts["cpu"]["usable_cores"]}
    return facts


def _cpu() -> dict[str, Any]:
    facts = cpu_facts()
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    vectors = [name for name in ("avx2", "fma", "avx512f", "amx_tile", "sve", "asimd") if name in flags]
    return {
        "model": facts.get("model name", platform.processor()),
        "logical_cores": os.cpu_count(),
        "usable_cores": usable_threads(),
        "cores_per_socket": int(facts["cpu cores"]) if facts.get("cpu cores", "").isdecimal() else None,
        "reported_MHz": facts.get("cpu MHz"),
        "vectors": vectors,
        "torch_threads": torch.get_num_threads(),
        "caches": caches(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
    }


def _total_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _variables() -> dict[str, str]:
    """Return the environment variables that affect computation or communication in libraries."""
    prefixes = ("NCCL_", "CUDA_", "CUBLAS_", "CUDNN_", "OMP_", "MKL_", "GLOO_", "TORCH_", "PYTORCH_", "NVIDIA_TF32")
    private = ("HOME", "PATH", "DIR", "FILE", "HOST", "ADDR")
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(prefixes) and not any(word in name for word in private) and "/" not in value
    }


def _gpu(bench: Bench) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(bench.device)
    return {
        "driver": nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split("\n", maxsplit=1)[0],
        "cuda": str(torch.version.cuda or torch.version.hip or ""),
        "cudnn": torch.backends.cudnn.version(),
        "nccl": nccl_version() or None,
        "gpu": {
            "name": properties.name,
            "count": torch.cuda.device_count(),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "sm_count": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": bench.cache_bytes,
            **bench.sensors.limits(),
        },
        "settings": nvidia_smi(
            "--query-gpu=ecc.mode.current,mig.mode.current,persistence_mode,compute_mode,vbios_version", "--format=csv"
        ).splitlines(),
        "links": nvidia_smi("topo", "-m").splitlines(),
    }


def nccl_version() -> str:
    """Return the version of torch's NCCL; empty without."""
    there = torch.cuda.is_available() and torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return ".".join(map(str, torch.cuda.nccl.version())) if there else ""
