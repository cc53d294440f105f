"""Limits of clocks and memories, in a spec and in options of commands. Imports nothing, so that
defining options is quick.
"""

SLOWEST_CLOCK, FASTEST_CLOCK = 0.001, 100_000
"""MHz."""
MAX_LATENCY = 65_535
"""Cycles."""
MIN_SPEED, MAX_SPEED = 0.01, 1024.0
"""Bytes a cycle. The most is that of commands; a spec's memory has at most twice its bus."""
