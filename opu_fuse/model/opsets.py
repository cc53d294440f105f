"""Operator sets that the installed ONNX Runtime takes.

It refuses a model that is stamped with a newer set than it knows, and of a set that it knows it may
lack an operator (1.32 takes set 28, but not its QuantizeLinear), although most operators have not
changed for years: such a model gets the stamp of an older set in which its nodes mean the same.
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
"""Of operators that ONNX Runtime has by itself."""
KNOWN = 23
"""Every ONNX Runtime that we run with takes this one."""
IR_VERSION = 10
"""Newer forms of the file brought nothing that is needed here."""
REAL_FLOOR_MOD = 28
"""The set that brought Mod of real numbers with the sign of the divisor (fmod = 0)."""
_REWORDED = frozenset({"BitShift", "Mod"})
"""Set 28 describes them in other words and takes more; what it took before means the same."""

_Types = tuple[str | None, ...]
"""Of each operand, as schemas call them; None where it is absent or unknown."""


def runnable_opsets(nodes: Iterable[ir.Node], imports: Mapping[str, int]) -> dict[str, int]:
    """Imports for the nodes of a model with `imports`: the oldest standard set from KNOWN on that
    has all of them as they are.
    """
    given = next((imports[domain] for domain in STANDARD if domain in imports), KNOWN)
    needed = given
    if given > KNOWN:
        kinds = {_kind(node) for node in nodes if node.domain in STANDARD}
        needed = max([KNOWN, *(_oldest_form(*kind, given) for kind in kinds)])
    return {d: v for d, v in imports.items() if d not in STANDARD} | {"": needed}


def is_real_floor_mod(node: ir.Node) -> bool:
    """Mod that older sets than REAL_FLOOR_MOD have for integers only."""
    dtype = node.outputs[0].dtype
    real = dtype is not None and dtype.is_floating_point()
    return node.op_type == "Mod" and real and not node.attributes.get_int("fmod", 0)


def _kind(node: ir.Node) -> tuple[str, _Types, _Types, bool]:
    """Operator, types of its operands and results, whether it is a Mod of reals."""
    return node.op_type, _types(node.inputs), _types(node.outputs), is_real_floor_mod(node)


def _types(values: Sequence[ir.Value | None]) -> _Types:
    dtypes = (value.dtype if value is not None else None for value in values)
    return tuple(None if d is None else f"tensor({d.name.lower()})" for d in dtypes)


def _oldest_form(
    op_type: str, operands: _Types, results: _Types, floors_reals: bool, version: int
) -> int:
    """The oldest set from KNOWN on in which an operator has the words of `version` and takes these
    types.
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
    """Whether operands or results may have these types; the last formal one may repeat."""
    return all(
        found is None or found in formal[min(i, len(formal) - 1)].types
        for i, found in enumerate(types)
    )


def _words(schema: onnx.defs.OpSchema) -> tuple[str | None, list[str], list[str], list[str]]:
    """What an operator does, without the types it does it on."""
    names = ([p.name for p in schema.inputs], [p.name for p in schema.outputs])
    doc = None if schema.name in _REWORDED else schema.doc
    return doc, sorted(schema.attributes), *names
