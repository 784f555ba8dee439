"""Logs of published runs with faults put in, to see whether ``validate check`` finds them."""
