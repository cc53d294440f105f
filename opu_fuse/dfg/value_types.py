"""ONNX types of values: the results of inference, never a guess.

The model's own shape inference knows standard operators. ONNX Runtime, which
has to run operators of other libraries, reports the types of their results.
"""

import functools

import numpy as np
import onnx
import onnx_ir as ir
from msgspec import Struct
from onnx import helper

from opu_fuse.dtypes import container_dtype
from opu_fuse.errors import ModelError

UNKNOWN = -1
"""Size of a dimension that is not known before the run (after host operators such as NonZero)."""

_Dims = tuple[int | ir.SymbolicDim, ...]
_NO_NUMBERS = frozenset({ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128})


class ValueType(Struct, frozen=True, kw_only=True):
    """dtype: of the elements; shape: None where not even the rank is known, UNKNOWN for single
    dimensions.
    """

    dtype: ir.DataType
    shape: tuple[int, ...] | None

    @property
    def container(self) -> ir.DataType:
        """Dtype of numpy arrays that hold such a value (`dtypes.py`)."""
        return ir.DataType.from_numpy(np.dtype(container_dtype(self.dtype.numpy().name)))

    @property
    def is_narrow(self) -> bool:
        """True when that is another one."""
        return self.container != self.dtype

    def info(self, name: str, dtype: ir.DataType | None = None) -> onnx.ValueInfoProto:
        """Declares a value of this shape, and of this dtype if it has none."""
        shape = self.shape and [None if d == UNKNOWN else d for d in self.shape]
        return helper.make_tensor_value_info(name, int(dtype or self.dtype), shape)


def type_of(value: ir.Value) -> ValueType | None:
    """The type that the model's inference assigned; None without one.

    Raises ModelError for what is no tensor of numbers: sequences, optionals, strings.
    """
    kind, shape = value.type, value.shape
    if kind is not None and not isinstance(kind, ir.TensorType):
        what = f"is a {type(kind).__name__.removesuffix('Type').lower()}"
        raise _no_tensor(value, what)
    dtype = value.dtype
    if dtype is None or dtype == ir.DataType.UNDEFINED:
        return None
    if dtype in _NO_NUMBERS:
        raise _no_tensor(value, f"holds elements of type {dtype.name.lower()}")
    return _tensor(dtype, None if shape is None else shape.dims)


@functools.lru_cache(maxsize=1024)
def _tensor(dtype: ir.DataType, dims: _Dims | None) -> ValueType:
    """Networks repeat few of them often."""
    return ValueType(dtype=dtype, shape=None if dims is None else known_dims(dims))


@functools.lru_cache(maxsize=1024)
def known_dims(dims: _Dims) -> tuple[int, ...]:
    """Sizes of dimensions, UNKNOWN where a size depends on the run."""
    return tuple(d if type(d) is int else UNKNOWN for d in dims)


def type_of_data(data: np.ndarray) -> ValueType:
    """The type of a constant."""
    return ValueType(dtype=ir.DataType.from_numpy(data.dtype), shape=data.shape)


def _no_tensor(value: ir.Value, what: str) -> ModelError:
    return ModelError(
        f"value {value.name!r}",
        f"{what}, programs carry tensors of numbers only",
        "leave that part of the model out of the export",
    )
