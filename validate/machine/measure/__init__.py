"""What runs on real hardware: operators, copies, memory, launches, steps and collectives, measured.

Compute nodes often have torch and nothing else.  So this package imports torch and the standard
library only (checked by import-linter), and ``python -m validate.measure`` does there what
``validate run`` does elsewhere.  It measures; what the figures mean, ``validate compare`` says.
"""
