"""struct opu_registers by ctypes, and the back end that drives it."""

import ctypes

from tests.runtime.built import build

READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Registers(ctypes.Structure):
    """struct opu_registers."""

    _fields_ = (
        ("read", READ),
        ("write", WRITE),
        ("to_device", CALL),
        ("to_processor", CALL),
        ("wait", CALL),
        ("self", ctypes.c_void_p),
        ("address", ctypes.c_uint64),
        ("memory", ctypes.c_void_p),
        ("running", ctypes.c_void_p),
        ("queued", ctypes.c_void_p),
        ("programs", ctypes.c_uint32),
    )


def registers_library(folder):
    """The back end alone: sessions are those of the library that the engine is in."""
    target = folder / "registers.so"
    options = ("-O1", "-fPIC", "-shared")
    return ctypes.CDLL(str(build(target, "hardware/opu_registers.c", options=options)))
