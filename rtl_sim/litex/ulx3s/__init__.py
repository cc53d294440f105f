"""The board ULX3S in simulation, as LiteX wrote it."""
