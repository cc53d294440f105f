"""The native engine: libopu by ctypes, the bits of the functional engine."""
