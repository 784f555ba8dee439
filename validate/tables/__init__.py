"""Tables of measurements: reading them, their conventions and names."""
