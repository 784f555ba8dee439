"""Converting published measurements to tables of this project."""
