"""Between the user's arrays and the values of the program: checking, quantising, dequantising."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from opu_fuse.bundle.program import UNKNOWN, Bundle, Port
from opu_fuse.dtypes import NARROW, container_dtype, numpy_dtype
from opu_fuse.errors import RunError
from opu_fuse.input_arrays import Arrays, by_name
from opu_fuse.quant import UINT8_SHIFT, QuantParams, as_int8

NOISE_SEED = 0

log = logging.getLogger(__name__)


def samples_of(bundle: Bundle, inputs: Arrays | None) -> tuple[dict[str, np.ndarray], int]:
    """Checked inputs with a leading sample axis on every array, and the number of samples.

    inputs: as `input_arrays.py` takes them. An input of shape (1, …) may be passed as (N, …), the
    same N for all. None: seeded noise, with a warning. Raises RunError naming the expected and the
    actual arrays.
    """
    if inputs is None:
        log.warning("no input: running on noise (seed %d)", NOISE_SEED)
        inputs = noise(bundle)
    expected = ", ".join(f"{p.name} {_text(p.dtype, p.shape)}" for p in bundle.inputs)
    inputs = named_inputs(bundle, inputs)
    for name in inputs:
        if name not in {p.name for p in bundle.inputs}:
            raise RunError(f"input {name}", "is no input of the model", f"it has: {expected}")
    results: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for port in bundle.inputs:
        if port.name not in inputs:
            raise RunError(f"input {port.name}", "is missing", f"the model has: {expected}")
        array = np.asarray(inputs[port.name])
        results[port.name], counts[port.name] = _checked(port, array)
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{name}: {n}" for name, n in counts.items())
        raise RunError(
            "inputs", f"have different numbers of samples ({sizes})", "give as many of each"
        )
    return results, next(iter(counts.values()), 1)


def named_inputs(bundle: Bundle, inputs: Arrays) -> Mapping[str, np.ndarray]:
    """Arrays by name, of models with one input from an array or a list of samples, too."""
    return by_name("inputs", inputs, {p.name: p.shape for p in bundle.inputs}, RunError)


def noise(bundle: Bundle, seed: int = NOISE_SEED) -> dict[str, np.ndarray]:
    """Seeded noise, for as many samples as run together: normal for floats, all values for
    integers.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for port in bundle.inputs:
        dtype = np.dtype(container_dtype(port.dtype))
        shape = port.shape if bundle.batch == 1 else (bundle.batch, *port.shape[1:])
        if dtype.kind == "f":
            data = rng.standard_normal(shape)
        elif dtype.kind == "b":
            data = rng.integers(0, 2, shape)
        else:
            low, high = _integers(port.dtype)
            data = rng.integers(max(low, -128), min(high, 255) + 1, shape)
        arrays[port.name] = np.asarray(data).astype(dtype).astype(numpy_dtype(port.dtype))
    return arrays


def _integers(dtype: str) -> tuple[int, int]:
    """Least and largest value; narrow types have their width (2 or 4 bits) in their name."""
    if dtype not in NARROW:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    count = 1 << int(dtype[-1])
    return (0, count - 1) if dtype.startswith("u") else (-count // 2, count // 2 - 1)


def to_value(port: Port, array: np.ndarray, *, inside_int8: bool) -> np.ndarray:
    """One sample of an input -> the value inside.

    inside_int8: the value is in the memory window. It, and that of a port with a scale, is int8
    inside: floats are quantised, uint8 shifted by 128, int8 left alone, bytes of a port with a
    table looked up. Others are unchanged, in a type that numpy has.
    Raises RunError for a NaN that would have to be quantised.
    """
    if port.turn is not None:
        array = port.turn.inside(array)
    if port.table is not None:
        return port.table.inside(array)
    if port.scale is None and not inside_int8:
        return array.astype(container_dtype(port.dtype), copy=False)
    if array.dtype == np.uint8:
        return as_int8(array)
    if array.dtype == np.int8:
        return array
    if np.isnan(array).any():
        what = "holds NaN, which no int8 can represent"
        raise RunError(f"input {port.name}", what, "clean the data")
    return _params(port).quantize(array)


def from_value(port: Port, value: np.ndarray, *, inside_int8: bool) -> np.ndarray:
    """The value inside -> an output in the model's dtype and shape; the inverse of `to_value`."""
    if not inside_int8:
        inside = port.turn.value if port.turn else port.shape
        require_shape(f"output {port.name}", value, inside)
    if port.turn is not None:
        value = port.turn.outside(value, port.shape)
    if UNKNOWN not in port.shape:
        value = value.reshape(port.shape)
    if value.dtype != np.int8 or (port.scale is None and not inside_int8):
        return value.astype(numpy_dtype(port.dtype), copy=False)
    if port.dtype == "uint8":
        return (value.astype(np.int16) + UINT8_SHIFT).astype(np.uint8)
    if port.dtype == "int8":
        return value
    return _params(port).dequantize(value).astype(port.dtype, copy=False)


def require_shape(where: str, value: np.ndarray, declared: Sequence[int]) -> None:
    """Raises RunError for a value the host computed in another shape than declared.

    Where the shape depends on data, the compiler relies on the shape that the model declares. (A
    damaged host model also gives another shape.)
    """
    sizes = zip(value.shape, declared, strict=False)
    if value.ndim == len(declared) and all(d in (size, UNKNOWN) for size, d in sizes):
        return
    what = f"has shape {list(value.shape)} with these inputs, the program says {list(declared)}"
    raise RunError(where, what, "give inputs that lead to that shape")


def _params(port: Port) -> QuantParams:
    assert port.scale is not None
    return QuantParams(scale=(port.scale,), zero_point=port.zero_point)


def _checked(port: Port, array: np.ndarray) -> tuple[np.ndarray, int]:
    if array.dtype.name.startswith("void") and port.dtype in NARROW:  # so .npy files name them
        same = array.dtype.itemsize == numpy_dtype(port.dtype).itemsize
        array = array.view(numpy_dtype(port.dtype)) if same else array
    if str(array.dtype) != port.dtype:
        what = f"has dtype {array.dtype}, expected {_text(port.dtype, port.shape)}"
        raise RunError(f"input {port.name}", what, f"convert it with .astype({port.dtype!r})")
    if array.shape == port.shape:
        return array[None], 1
    batched = len(port.shape) > 0 and port.shape[0] == 1
    if (
        batched
        and array.ndim == len(port.shape)
        and array.shape[1:] == port.shape[1:]
        and len(array)
    ):
        return array[:, None], len(array)
    what = f"has shape {list(array.shape)}, expected {list(port.shape)}"
    more = f"give {['N', *port.shape[1:]]} for N samples" if batched else "give that shape"
    raise RunError(f"input {port.name}", what, more.replace("'", ""))


def _text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"
