"""A real network on one Linux machine: measured, predicted, compared."""
