"""Facts about the machine, stored with every set of measurements to help interpret it."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.host import caches, cpu_facts, nvidia_smi, usable_threads

SAME = ("device", "driver", "torch", "cuda", "threads", "cores", "power_limit_W", "mig")
"""Facts that two runs must share to put their rows in one table."""

Facts = dict[str, Any]
# Prefixes of the variables that affect computation or communication in libraries, and words in private ones.
_LIBRARIES = ("NCCL_", "CUDA_", "CUBLAS_", "CUDNN_", "OMP_", "MKL_", "GLOO_", "TORCH_", "PYTORCH_", "NVIDIA_TF32")
_PRIVATE = ("HOME", "PATH", "DIR", "FILE", "HOST", "ADDR")
_SETTINGS = "--query-gpu=ecc.mode.current,mig.mode.current,persistence_mode,compute_mode,vbios_version"
_MIG = ("--query-gpu=mig.mode.current", "--format=csv,noheader")


def environment(bench: Bench) -> dict[str, Any]:
    """Return the facts about the machine that may explain a result; no serial numbers, names, addresses or paths."""
    facts = Facts(device=bench.name, python=platform.python_version(), torch=str(torch.__version__))
    facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts |= Facts(cpu=_cpu(), memory_bytes=None)
    with suppress(ValueError, OSError):
        facts["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts["variables"] = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_LIBRARIES) and not any(word in name for word in _PRIVATE) and "/" not in value
    }
    if bench.is_cuda:
        facts |= _gpu(bench)
        return facts | Facts(power_limit_W=facts["gpu"].get("power_limit_W"), mig=nvidia_smi(*_MIG))
    return facts | Facts(threads=torch.get_num_threads(), cores=facts["cpu"]["usable_cores"])


def _cpu() -> Facts:
    said = cpu_facts()
    flags = set((said.get("flags") or said.get("Features") or "").split())
    cores = int(said["cpu cores"]) if said.get("cpu cores", "").isdecimal() else None
    facts = Facts(model=said.get("model name", platform.processor()), logical_cores=os.cpu_count())
    facts |= Facts(usable_cores=usable_threads(), cores_per_socket=cores, reported_MHz=said.get("cpu MHz"))
    facts["vectors"] = [name for name in ("avx2", "fma", "avx512f", "amx_tile", "sve", "asimd") if name in flags]
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None
    return facts | Facts(torch_threads=torch.get_num_threads(), caches=caches(), numa_nodes=nodes)


def _gpu(bench: Bench) -> Facts:
    properties = torch.cuda.get_device_properties(bench.device)
    gpu = Facts(name=properties.name, count=torch.cuda.device_count())
    gpu["compute_capability"] = f"{properties.major}.{properties.minor}"
    gpu |= Facts(sm_count=properties.multi_processor_count, memory_bytes=properties.total_memory)
    gpu |= {"l2_bytes": bench.cache_bytes, **bench.sensors.limits()}
    driver = nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split("\n", maxsplit=1)[0]
    facts = Facts(driver=driver, cuda=str(torch.version.cuda or torch.version.hip or ""))
    facts |= Facts(cudnn=torch.backends.cudnn.version(), nccl=nccl_version() or None, gpu=gpu)
    settings, links = nvidia_smi(_SETTINGS, "--format=csv"), nvidia_smi("topo", "-m")
    return facts | Facts(settings=settings.splitlines(), links=links.splitlines())


def nccl_version() -> str:
    """Return the version of torch's NCCL; empty without."""
    there = torch.cuda.is_available() and torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return ".".join(map(str, torch.cuda.nccl.version())) if there else ""
