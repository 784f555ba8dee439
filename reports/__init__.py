"""Figures and pages of results.  Matplotlib and jinja2 are imported only here, when one is made."""
