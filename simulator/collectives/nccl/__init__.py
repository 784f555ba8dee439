"""NCCL: what it would choose at a size, and what that costs."""
