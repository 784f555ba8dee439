"""The cost of computing: devices, the kernels they run, and the time of each kernel."""
