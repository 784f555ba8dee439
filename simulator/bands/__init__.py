"""How sure an answer is: bands from the errors of measured rows on devices and machines that were left out.

``bands.json`` beside these files holds, by class, the quantiles of log(measured / predicted); ``validate bands
--write`` makes it from tables of measurements.  No prediction reads it.  docs/decisions/bands.md explains.
"""
