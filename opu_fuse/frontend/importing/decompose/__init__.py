"""Operators of other domains, sequences and control flow, decomposed into standard operators."""
