"""Measure real hardware: operators, copies, memory, launches, steps and collectives.

Compute nodes often have only torch.  This package therefore imports nothing but torch and the standard library
(checked by import-linter), so that ``python -m validate.measure`` runs there in place of ``validate run``.  It only
measures; ``validate compare`` interprets the results.
"""
