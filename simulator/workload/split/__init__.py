"""Networks divided among ranks: each function turns a network into that of one of them."""
