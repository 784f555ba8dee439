"""Predicted times compared with measured ones; the command line is :mod:`validate.cli`.

Nothing may depend on this file: ``configobj`` installs a package of the same name, whose ``__init__.py`` may replace
it.
"""
