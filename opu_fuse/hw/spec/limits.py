"""What a clock and a memory may be, in a spec and where a command asks for others. Imports nothing:
options of commands say it.
"""

SLOWEST_CLOCK, FASTEST_CLOCK = 0.001, 100_000
"""MHz."""
MAX_LATENCY = 65_535
"""Cycles."""
MIN_SPEED, MAX_SPEED = 0.01, 1024.0
"""Bytes a cycle. The most is that of commands; a spec's memory has at most twice its bus."""
