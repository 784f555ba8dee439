"""The few constants of one device from a few measurements: ``validate calibrate``."""
