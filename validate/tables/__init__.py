"""Tables of measurements: reading, conventions, and the names of machines and devices."""
