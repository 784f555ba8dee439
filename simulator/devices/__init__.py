"""What compute costs: devices, the kernels they run, and the time each kernel takes."""
