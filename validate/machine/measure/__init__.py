"""Measure real hardware: operators, copies, memory, launches, steps and collectives; ``validate compare`` judges them.

It imports nothing but torch and the standard library (checked by import-linter), which is all that compute nodes often
have: ``python -m validate.measure`` runs there in place of ``validate run``.
"""
