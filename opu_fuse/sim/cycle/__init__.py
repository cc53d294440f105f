"""The cycle engine: time without values, cycle for cycle that of the RTL."""
