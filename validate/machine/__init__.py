"""A real machine: described, measured, and several of them run as a cluster."""
