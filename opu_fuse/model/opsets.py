"""Operator sets that the installed ONNX Runtime takes.

It refuses a model that is stamped with a newer set than it knows, although most operators have not
changed for years: such a model gets the stamp of an older set in which its operators mean the same.
"""

import functools
import logging
from collections.abc import Iterable, Mapping

import onnx
from onnx import helper

STANDARD = ("", "ai.onnx")
KNOWN = 23
"""Every ONNX Runtime that we run with takes this one."""
IR_VERSION = 10
"""Newer forms of the file brought nothing that is needed here."""
_REWORDED = frozenset({"BitShift", "Mod"})
"""Set 28 describes them in other words and takes more types; the older types mean the same."""

log = logging.getLogger(__name__)


def runnable_opsets(
    operators: Iterable[tuple[str, str]], imports: Mapping[str, int]
) -> dict[str, int]:
    """Imports for operators (domain, type) of a model with `imports`.

    What has no form as old as that keeps its own set: ONNX Runtime says so then.
    """
    given = next((imports[domain] for domain in STANDARD if domain in imports), KNOWN)
    needed = given
    if given > KNOWN:
        types = {op_type for domain, op_type in operators if domain in STANDARD}
        needed = max([KNOWN, *(_oldest_form(op_type, given) for op_type in types)])
    return {d: v for d, v in imports.items() if d not in STANDARD} | {"": needed}


@functools.cache
def newest_opset() -> int:
    """The newest standard operator set that ONNX Runtime takes; it does not say which that is, but
    when it is too new.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    number = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [])
    node = helper.make_node("Neg", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [number], [helper.make_empty_tensor_value_info("y")])
    for version in range(onnx.defs.onnx_opset_version(), KNOWN, -1):
        stamp = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=stamp, ir_version=IR_VERSION)
        try:
            ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
            log.debug("operator set %d: %s", version, error)
        else:
            return version
    return KNOWN


def _oldest_form(op_type: str, version: int) -> int:
    """The set that brought the operator's present form; where that is too new, the set of an older
    form with the same description, which takes fewer types.
    """
    schema = _schema(op_type, version)
    if schema is None:
        return version
    form = schema
    while form.since_version > KNOWN and form.since_version > newest_opset():
        older = _schema(op_type, form.since_version - 1)
        if older is None or _words(older) != _words(schema):
            return schema.since_version
        form = older
    return form.since_version


def _schema(op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version)
    except onnx.defs.SchemaError:
        return None


def _words(schema: onnx.defs.OpSchema) -> tuple[str | None, list[str], list[str], list[str]]:
    """What an operator does, without the types it does it on."""
    names = ([p.name for p in schema.inputs], [p.name for p in schema.outputs])
    doc = None if schema.name in _REWORDED else schema.doc
    return doc, sorted(schema.attributes), *names
