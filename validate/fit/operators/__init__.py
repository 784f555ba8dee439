"""Constants of the costs of kernels, each class fitted to the rows that it bounds."""
