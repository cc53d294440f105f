"""Lowers the opset version of a model to one that the installed ONNX Runtime supports.

ONNX Runtime rejects a model of a newer opset than it supports. It may also lack an operator of an
opset that it supports (1.32 supports opset 28, but not its QuantizeLinear). Most operators have not
changed for years, so the model gets the oldest version in which its nodes have the same semantics.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence

import onnx
import onnx_ir as ir

STANDARD = ("", "ai.onnx")
HOST_DOMAINS = (
    *STANDARD,
    *("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"),
    *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "com.ms.internal.nhwc"),
)
"""Domains of the operators that ONNX Runtime has built in."""
KNOWN = 23
"""Opset that all supported versions of ONNX Runtime accept."""
IR_VERSION = 10
"""IR version of the models. Newer ones have no feature that is needed here."""
REAL_FLOOR_MOD = 28
"""Opset that added Mod of floats with the sign of the divisor (fmod = 0)."""
_REWORDED = frozenset({"BitShift", "Mod"})
"""Operators whose documentation changed in opset 28, which added types. Their semantics did not."""

_Types = tuple[str | None, ...]
"""Type string of each operand, as in schemas; None if it is absent or unknown."""


def runnable_opsets(nodes: Iterable[ir.Node], imports: Mapping[str, int]) -> dict[str, int]:
    """Opset imports with the oldest standard opset from KNOWN on that supports all nodes as is.

    imports: opset imports of the model of these nodes.
    """
    version = next((imports[domain] for domain in STANDARD if domain in imports), KNOWN)
    needed = version
    if version > KNOWN:
        kinds = {_kind(node) for node in nodes if node.domain in STANDARD}
        needed = max([KNOWN, *(_oldest_form(*kind, version) for kind in kinds)])
    return {d: v for d, v in imports.items() if d not in STANDARD} | {"": needed}


def is_real_floor_mod(node: ir.Node) -> bool:
    """Whether a node is a Mod that opsets before REAL_FLOOR_MOD define for integers only."""
    dtype = node.outputs[0].dtype
    real = dtype is not None and dtype.is_floating_point()
    return node.op_type == "Mod" and real and not node.attributes.get_int("fmod", 0)


def _kind(node: ir.Node) -> tuple[str, _Types, _Types, bool]:
    """Operator, types of its operands and results, and whether it is a floor Mod of floats."""
    return node.op_type, _types(node.inputs), _types(node.outputs), is_real_floor_mod(node)


def _types(values: Sequence[ir.Value | None]) -> _Types:
    dtypes = (value.dtype if value is not None else None for value in values)
    return tuple(None if d is None else f"tensor({d.name.lower()})" for d in dtypes)


def _oldest_form(
    op_type: str, operands: _Types, results: _Types, floors_reals: bool, version: int
) -> int:
    """Oldest opset from KNOWN on whose schema of an operator equals that of `version`.

    Only schemas that accept these types are considered.
    """
    schema = _schema(op_type, version)
    if schema is None or floors_reals:
        return version
    form = schema
    while form.since_version > KNOWN:
        older = _schema(op_type, form.since_version - 1)
        if older is None or _words(older) != _words(schema):
            break
        if not (_takes(older.inputs, operands) and _takes(older.outputs, results)):
            break
        form = older
    return form.since_version


@functools.cache
def _schema(op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version)
    except onnx.defs.SchemaError:
        return None


def _takes(formal: Sequence[onnx.defs.OpSchema.FormalParameter], types: _Types) -> bool:
    """Whether a schema accepts these types. The last formal parameter may be variadic."""
    return all(
        dtype is None or dtype in formal[min(i, len(formal) - 1)].types
        for i, dtype in enumerate(types)
    )


def _words(schema: onnx.defs.OpSchema) -> tuple[str | None, list[str], list[str], list[str]]:
    """Documentation, attributes and parameter names of a schema, without types."""
    names = ([p.name for p in schema.inputs], [p.name for p in schema.outputs])
    doc = None if schema.name in _REWORDED else schema.doc
    return doc, sorted(schema.attributes), *names
