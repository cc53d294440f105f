"""Checks that each pass leaves a valid model."""

from collections import ChainMap
from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes.common import CheckerPass

from opu_fuse.errors import InternalError
from opu_fuse.passes.context import PassInfo

SymbolTable = ChainMap[str, ir.Value]
"""Defined values by name: of the graph itself first, then of those around it."""


class VerifyIR:
    """Instrument: after each pass every value is defined where it is read, `onnx.checker` agrees.

    Raises InternalError that names the pass which broke the model and those that ran before it
    in this context. The model before the first pass is checked too, so that no pass is blamed for
    it.
    """

    def __init__(self) -> None:
        self._ran: list[str] = []
        self._seen_valid = False

    def enter_pass_ctx(self) -> None:
        self._ran.clear()
        self._seen_valid = False

    def run_before_pass(self, model: ir.Model, info: PassInfo) -> None:
        if self._seen_valid:
            return
        _check(model, "passes", f"the model is invalid before {info.name}, the first pass")
        self._seen_valid = True

    def run_after_pass(self, model: ir.Model, info: PassInfo) -> None:
        before = f"passes that ran before: {', '.join(self._ran) or 'none'}"
        _check(model, f"pass {info.name}", f"it left an invalid model ({before})")
        self._ran.append(info.name)


def _check(model: ir.Model, stage: str, what: str) -> None:
    undefined = first_undefined(model)
    if undefined is not None:
        raise InternalError(stage=stage, what=f"{what}: {undefined}")
    try:
        CheckerPass()(model.clone())  # it puts constants into another order
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InternalError(stage=stage, what=f"{what}: {reason}") from error


def first_undefined(model: ir.Model) -> str | None:
    """The first value that is read but not defined, defined twice, or another one of its name.

    Main graph, functions, and the graphs inside nodes. None when there is none.
    """
    return next(_problems(model), None)


def _problems(model: ir.Model) -> Iterator[str]:
    yield from _graph(model.graph, ChainMap(), "")
    for function in model.functions.values():
        where = f" in function {function.domain}::{function.name}"
        yield from _graph(function.graph, ChainMap(), where)


def _graph(graph: ir.Graph, outer: SymbolTable, where: str) -> Iterator[str]:
    """outer: what a graph inside a node sees of those around it."""
    symbols = outer.new_child()
    yield from _define([*graph.inputs], "the graph's inputs", symbols, where)
    constants = [v for v in graph.initializers.values() if not v.is_graph_input()]
    yield from _define(constants, "the constants", symbols, where)
    for name, value in graph.initializers.items():
        if value.name != name:
            yield f"constant {value.name!r} is listed as {name!r}{where}"
    for node in graph:
        if node.graph is not graph:
            yield f"{_label(node)} is listed in a graph it does not belong to{where}"
        for value in node.inputs:
            if value is not None:
                yield from _read(value, f"{_label(node)} reads", symbols, where)
        for inner in _inner_graphs(node):
            yield from _graph(inner, symbols, f" in {_label(node)}{where}")
        named = [value for value in node.outputs if value.name or value.uses()]
        yield from _define(named, _label(node), symbols, where)
    for value in graph.outputs:
        yield from _read(value, "the graph returns", symbols, where)


def _inner_graphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _define(values: list[ir.Value], by: str, symbols: SymbolTable, where: str) -> Iterator[str]:
    for value in values:
        if not value.name:
            yield f"a value of {by} has no name{where}"
        elif value.name in symbols.maps[0]:
            yield f"value {value.name!r} of {by} is defined twice{where}"
        else:
            symbols[value.name] = value


def _read(value: ir.Value, how: str, symbols: SymbolTable, where: str) -> Iterator[str]:
    visible = symbols.get(value.name or "")
    if visible is value:
        return
    producer = value.producer()
    if visible is not None:
        yield f"{how} another value than the {value.name!r} that is defined{where}"
    elif producer is not None and producer.graph is not None:
        definition = f"{_label(producer)} defines later or elsewhere"
        yield f"{how} {value.name!r}, which {definition}{where}"
    else:
        yield f"{how} {value.name!r}, which nothing defines{where}"


def _label(node: ir.Node) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node ({node.op_type})"
