"""Figures drawn from results.  Matplotlib is imported when one is drawn, and only here."""
