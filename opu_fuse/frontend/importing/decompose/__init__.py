"""Operators of other libraries, sequences and control flow, spelt in operators of the standard."""
