"""Networks that are written out, as torch modules: what ``validate run --workload`` measures."""
