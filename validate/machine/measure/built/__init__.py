"""Build torch modules from network descriptions: what ``validate run --workload`` measures."""
