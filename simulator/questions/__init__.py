"""Questions as plain data: the one form in which commands and tables of measurements ask for a prediction."""
