"""NCCL: the choices it would make for a collective, and what they cost."""
