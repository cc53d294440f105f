"""Fused host kernels as JSON: the members `host/NNN.kernel.json` of a program file.

Maps are text (`(d0, d1) -> (d1, d0)`), literals hexadecimal floats, constants base64 of their
little-endian bytes in C order: every bit survives, and the same kernel gives the same text.
"""

import base64
import binascii
import json
from functools import cache
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from opu_fuse.affine import parse_map
from opu_fuse.bundle.manifest import damaged
from opu_fuse.errors import InternalError
from opu_fuse.host.kernel import DTYPES, GenericOp, Input, Instr, Iterator, Kernel, Loop, Result
from opu_fuse.host.kernel_check import kernel_mistake

KERNEL_VERSION = 1
_CONFIG = ConfigDict(strict=True, extra="forbid")
_Natural = Annotated[int, Field(ge=0)]


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class _Input:
    """One operand. value: its name. map: loops -> index in the operand, as text."""

    value: str
    shape: tuple[_Natural, ...]
    dtype: str
    map: str


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class _Result:
    """One result. It starts from the operand `init`, from the literal `fill`, or unwritten."""

    value: str
    shape: tuple[_Natural, ...]
    dtype: str
    map: str
    init: str | None = None
    fill: str | None = None


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class _Constant:
    shape: tuple[_Natural, ...]
    dtype: str
    data: str


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class _KernelJson:
    """The JSON object of a kernel.

    loops: (kind, extent); body: (op, dtype, arguments, literal, loop).
    """

    kernel_version: int
    name: str
    loops: tuple[tuple[Iterator, int], ...]
    inputs: tuple[_Input, ...]
    results: tuple[_Result, ...]
    body: tuple[tuple[str, str, tuple[int, ...], str, int], ...]
    yields: tuple[int, ...]
    constants: dict[str, _Constant]


def kernel_to_json(kernel: Kernel) -> bytes:
    """The kernel as JSON. Raises InternalError if it is invalid (`kernel_check`)."""
    mistake = kernel_mistake(kernel)
    if mistake is not None:
        raise InternalError("kernel", f"{kernel.op.name}: {mistake}")
    op = kernel.op
    form = _KernelJson(
        kernel_version=KERNEL_VERSION,
        name=op.name,
        loops=tuple((x.kind, x.extent) for x in op.loops),
        inputs=tuple(_input(x) for x in op.inputs),
        results=tuple(_result(r) for r in op.results),
        body=tuple((i.op, i.dtype, i.args, i.literal, i.dim) for i in op.body),
        yields=op.yields,
        constants={name: _constant(kernel.constants[name]) for name in sorted(kernel.constants)},
    )
    # `init` and `fill` are absent rather than null.
    tree = _adapter().dump_python(form, mode="json", exclude_none=True)
    # One line per key, so that a diff of two kernels is readable.
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tree.items())
    return f"{{\n{lines}\n}}\n".encode()


def kernel_from_json(text: bytes, where: str) -> Kernel:
    """Parse and check. Raises ProgramError with the first mistake.

    where: file name in error messages.
    """
    try:
        form = _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise damaged(where, f"{location or 'the text'}: {first['msg']}") from None
    if form.kernel_version != KERNEL_VERSION:
        raise damaged(where, f"kernel of version {form.kernel_version}, not {KERNEL_VERSION}")
    try:
        kernel = _kernel(form)
    except (ValueError, binascii.Error) as error:
        raise damaged(where, str(error)) from None
    mistake = kernel_mistake(kernel)
    if mistake is not None:
        raise damaged(where, mistake)
    return kernel


def _input(x: Input) -> _Input:
    return _Input(value=x.value, shape=x.shape, dtype=x.dtype, map=str(x.map))


def _result(r: Result) -> _Result:
    index = str(r.map)
    return _Result(value=r.value, shape=r.shape, dtype=r.dtype, map=index, init=r.init, fill=r.fill)


def _constant(data: np.ndarray) -> _Constant:
    little = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False)
    text = base64.b64encode(little.tobytes()).decode()
    return _Constant(shape=data.shape, dtype=data.dtype.name, data=text)


def _kernel(form: _KernelJson) -> Kernel:
    op = GenericOp(
        name=form.name,
        loops=tuple(Loop(kind=kind, extent=extent) for kind, extent in form.loops),
        inputs=tuple(
            Input(value=t.value, shape=t.shape, dtype=t.dtype, map=parse_map(t.map))
            for t in form.inputs
        ),
        results=tuple(
            Result(
                value=t.value,
                shape=t.shape,
                dtype=t.dtype,
                map=parse_map(t.map),
                init=t.init,
                fill=t.fill,
            )
            for t in form.results
        ),
        body=tuple(
            Instr(op=name, dtype=dtype, args=args, literal=text, dim=dim)
            for name, dtype, args, text, dim in form.body
        ),
        yields=form.yields,
    )
    return Kernel(op=op, constants={n: _array(n, c) for n, c in form.constants.items()})


def _array(name: str, c: _Constant) -> np.ndarray:
    if c.dtype not in DTYPES:
        raise ValueError(f"constant {name} has the unknown dtype {c.dtype!r}")
    dtype = np.dtype(c.dtype)
    raw = base64.b64decode(c.data, validate=True)
    if len(raw) != dtype.itemsize * int(np.prod(c.shape, dtype=np.int64)):
        raise ValueError(f"constant {name} has {len(raw)} bytes, not those of {c.dtype}{c.shape}")
    stored = np.frombuffer(raw, dtype.newbyteorder("<")).reshape(c.shape)
    return stored.astype(dtype, copy=False)


@cache
def _adapter() -> TypeAdapter[_KernelJson]:
    return TypeAdapter(_KernelJson)
