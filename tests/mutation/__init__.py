"""How much of the code can be broken without a test that fails: ``python -m tests.mutation.run``."""
