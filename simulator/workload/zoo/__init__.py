"""Well-known networks, layer by layer."""
