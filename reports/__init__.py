"""Figures of results.  Matplotlib is imported only here, when a figure is drawn."""
