"""Element types of values outside the machine, as numpy and ml_dtypes name them.

Numpy has no types as narrow as ONNX's narrowest, and ONNX Runtime hands none over: such values
cross every border as the next wider type of numpy, which holds each of them exactly.
"""

from collections.abc import Mapping

import numpy as np

NATIVE = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)
_REALS = (
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
)
NARROW: Mapping[str, str] = {
    **dict.fromkeys(_REALS, "float32"),
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
}
"""Narrow type -> the one in which its values travel."""
DTYPES = (*NATIVE, *NARROW)


def numpy_dtype(name: str) -> np.dtype:
    """The dtype of a name in `DTYPES`."""
    if name not in NARROW:
        return np.dtype(name)
    import ml_dtypes  # few models need it

    return np.dtype(getattr(ml_dtypes, name))


def container_dtype(name: str) -> str:
    """The dtype of the arrays that hold values of a narrow type."""
    return NARROW.get(name, name)
