"""GPUs: what each class of kernels costs on them."""
