"""CPUs: the cost of each class of kernels."""
