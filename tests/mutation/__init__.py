"""Mutation testing, the share of broken code that tests notice: ``python -m tests.mutation.run``."""
