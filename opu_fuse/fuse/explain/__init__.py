"""Why operators are fused or not, in words, and remedies that were tried."""
