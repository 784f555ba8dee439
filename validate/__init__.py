"""Predicted times compared with measured ones.

This file holds nothing that anything needs: a module of the same name, which ``configobj``
installs, may stand in its place.  The command line is :mod:`validate.cli`.
"""
