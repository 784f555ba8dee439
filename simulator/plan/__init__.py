"""What happens, in which order, where: the one form that strategies write and the engine reads."""
