"""How far predictions are off, by class, for the bands of answers: ``validate bands``."""
