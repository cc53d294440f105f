"""Instructions: the table of opcodes and registers, encoding, assembly, faults."""
