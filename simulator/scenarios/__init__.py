"""Ready scenarios: files that define runs, and compare their answers with expected values."""
