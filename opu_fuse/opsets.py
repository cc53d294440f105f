"""The oldest operator sets in which nodes mean the same.

ONNX Runtime refuses a model that is stamped with an operator set newer than it knows, although most
operators have not changed for years.
"""

from collections.abc import Callable, Iterable, Mapping

import onnx

STANDARD = ("", "ai.onnx")
OLDEST = 17
"""Nothing is gained by going further back: every runtime knows this one."""
_REWORDED = frozenset({"BitShift", "Mod"})
"""Set 28 describes them in other words and takes more types; the older types mean the same."""


def needed_opsets(
    nodes: Iterable[onnx.NodeProto], imports: Mapping[str, int], newest: Callable[[], int]
) -> dict[str, int]:
    """Imports for some nodes, those inside them included, of a model with `imports`.

    newest: the newest standard set that will be understood; asked only where it matters. What has
    no form as old as that keeps its own: the runtime says so then.
    """
    known = next((imports[domain] for domain in STANDARD if domain in imports), OLDEST)
    needed = min(known, OLDEST)
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node.domain in STANDARD:
            needed = max(needed, _oldest_form(node.op_type, known, newest))
        for attribute in node.attribute:
            for graph in (*attribute.graphs, attribute.g):
                stack += graph.node
    return {d: v for d, v in imports.items() if d not in STANDARD} | {"": needed}


def _oldest_form(op_type: str, version: int, newest: Callable[[], int]) -> int:
    """The set that brought the operator's present form; where that is too new, the set of an older
    form with the same description, which takes fewer types.
    """
    schema = _schema(op_type, version)
    if schema is None:
        return version
    form = schema
    while form.since_version > max(OLDEST, newest() if form.since_version > OLDEST else OLDEST):
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
