"""Ready scenarios: files that name runs and say what of their answers is compared with what figure."""
