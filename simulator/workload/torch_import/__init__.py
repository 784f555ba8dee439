"""Any ``torch.nn.Module`` as a workload: ``torch:package.module:factory``.

The module is built and run once on torch's ``meta`` device, where tensors have shapes but no values, so it needs
neither weights nor a GPU.  docs/torch.md describes what a factory returns and what is recorded.  PyTorch is imported
only when a module is traced.
"""

from simulator.workload.torch_import.load import load_torch_workload
from simulator.workload.torch_import.request import TracedNetwork

__all__ = ["TracedNetwork", "load_torch_workload"]
