"""Constants from measurements."""
