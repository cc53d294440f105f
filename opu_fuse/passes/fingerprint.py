"""Whether two states of a model are the same: a digest of what is serialised, and of annotations.

Names count: renaming a value is a change. So do this project's own annotations in `Value.meta`
and `Node.meta`. Other libraries' notes in these and the order of constants do not.
"""

import functools
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

import onnx_ir as ir

_OWN_META = "opu_fuse."

TensorKey = Callable[[ir.TensorProtocol], str]


def fingerprint(model: ir.Model) -> str:
    """Digest of structure, annotations and the bytes of all tensors."""
    return _digest(model, _content)


def measured_change(model: ir.Model, change: Callable[[], object]) -> tuple[ir.Model, bool]:
    """Let `change` mutate the model; return the model and whether it differs from before.

    Tensors count as the same when they are the same object: `change` must not write into one.
    """
    alive: dict[int, ir.TensorProtocol] = {}  # keeps old tensors, so that no new one gets their id

    def identity(tensor: ir.TensorProtocol) -> str:
        alive[id(tensor)] = tensor
        return f"tensor at {id(tensor)}"

    before = _digest(model, identity)
    change()
    return model, _digest(model, identity) != before


def _digest(model: ir.Model, tensor_key: TensorKey) -> str:
    digest = hashlib.blake2b()
    for line in _model(model, tensor_key):
        digest.update(line.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _content(tensor: ir.TensorProtocol) -> str:
    data = hashlib.blake2b(tensor.tobytes()).hexdigest()
    return f"tensor {tensor.name!r} {tensor.dtype!r} {tensor.shape!r} {data}"


def _model(model: ir.Model, tensor_key: TensorKey) -> Iterator[str]:
    fields = (model.ir_version, model.producer_name, model.producer_version, model.domain)
    yield repr((*fields, model.model_version, model.doc_string)) + _notes(model.metadata_props)
    yield from _graph(model.graph, tensor_key)
    for key, function in model.functions.items():
        yield f"function {key}"
        for attribute in function.attributes.values():
            yield from _attribute(attribute, tensor_key)
        yield from _graph(function.graph, tensor_key)


def _graph(graph: ir.Graph, tensor_key: TensorKey) -> Iterator[str]:
    yield f"graph {graph.name!r} {graph.doc_string!r} {sorted(graph.opset_imports.items())}"
    yield _notes(graph.metadata_props)
    yield from _values("input", graph.inputs)
    for _, value in sorted(graph.initializers.items()):
        yield from _values("constant", [value])
        yield "no data" if value.const_value is None else tensor_key(value.const_value)
    for node in graph:
        yield from _node(node, tensor_key)
    yield from (f"output {value.name!r}" for value in graph.outputs)


def _node(node: ir.Node, tensor_key: TensorKey) -> Iterator[str]:
    inputs = [None if value is None else value.name for value in node.inputs]
    yield f"node {node.name!r} {node.op_identifier()} {node.version} {node.doc_string!r} {inputs}"
    yield _notes(node.metadata_props, node.meta)
    for attribute in node.attributes.values():
        yield from _attribute(attribute, tensor_key)
    yield from _values("result", node.outputs)


def _attribute(attribute: ir.Attr, tensor_key: TensorKey) -> Iterator[str]:
    yield f"attribute {attribute.name!r} {attribute.type!r} {attribute.ref_attr_name!r}"
    if attribute.is_ref() or attribute.value is None:
        return
    match attribute.type:
        case ir.AttributeType.GRAPH:
            yield from _graph(attribute.as_graph(), tensor_key)
        case ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                yield from _graph(graph, tensor_key)
        case ir.AttributeType.TENSOR:
            yield tensor_key(attribute.as_tensor())
        case ir.AttributeType.TENSORS:
            yield from map(tensor_key, attribute.as_tensors())
        case _:
            yield repr(attribute.value)


def _values(role: str, values: Iterable[ir.Value]) -> Iterator[str]:
    for value in values:
        kind = f"{value.type!r} {value.shape!r} {value.doc_string!r}"
        yield f"{role} {value.name!r} {kind} {_notes(value.metadata_props, value.meta)}"


def _notes(properties: Mapping[str, str], meta: Mapping[str, Hashable] | None = None) -> str:
    own = [(k, _text(note)) for k, note in (meta or {}).items() if str(k).startswith(_OWN_META)]
    return f"{sorted(properties.items())} {sorted(own)}"


@functools.lru_cache(maxsize=4096)
def _text(annotation: Hashable) -> str:
    """Scales of a thousand channels take long to write."""
    return repr(annotation)
