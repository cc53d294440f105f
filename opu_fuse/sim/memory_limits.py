"""Of a memory that somebody may have behind the port: the same for `run` and for sweeps."""

MAX_LATENCY = 65_535
"""Cycles."""
MIN_SPEED, MAX_SPEED = 0.01, 1024.0
"""Bytes per cycle."""
