"""What a Python program issues, statement by statement, and the plan that it makes."""
