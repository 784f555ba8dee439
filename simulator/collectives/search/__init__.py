"""Searches for rings and trees in the link graph of a machine."""
