"""Searches in the link graph of a machine: rings, trees."""
