"""The functional engine: numpy, bit-exact, without time."""
