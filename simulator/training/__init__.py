"""How a step is divided over devices and synchronised: each way writes a plan."""
