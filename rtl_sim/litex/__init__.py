"""A SoC of LiteX around the machine, simulated."""
