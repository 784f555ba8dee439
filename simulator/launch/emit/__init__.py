"""Steps as launch lines of other programs."""
