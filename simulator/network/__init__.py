"""The topology compiled for simulation: directed links, shared resources, routes."""
