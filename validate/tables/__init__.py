"""Tables of measurements: read, with what they mean and do not say, and the names that they use."""
