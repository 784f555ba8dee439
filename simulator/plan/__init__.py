"""The plan: activities with their order and places, the form that strategies write and the engine reads."""
