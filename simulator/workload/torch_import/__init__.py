"""Any ``torch.nn.Module`` as a workload: ``torch:package.module:factory``.

The module is built and run once on torch's device ``meta``, where tensors have shapes and no
numbers, so that neither weights nor a GPU are needed.  What a factory returns, and what is
recorded: docs/torch.md.  PyTorch is imported when a module is asked for, not before.
"""

from simulator.workload.torch_import.load import TracedNetwork, load_torch_workload

__all__ = ["TracedNetwork", "load_torch_workload"]
