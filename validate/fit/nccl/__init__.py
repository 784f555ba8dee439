"""The fit of the constants of NCCL's protocols."""
