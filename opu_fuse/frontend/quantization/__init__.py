"""Ranges, scales, and the Q/DQ pairs of this and of other quantisers."""
