"""A group of operators as one pass through the machine."""
