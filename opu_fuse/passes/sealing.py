"""Hiding nodes from library passes that know nothing of annotations or skipped functions."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import onnx_ir as ir

from opu_fuse.quant import META_KEY

_DOMAIN = "opu_fuse.sealed"


def annotation(value: ir.Value | None) -> object:
    """The quantisation annotation of a value (see quant.py), None without one."""
    return None if value is None else value.meta.get(META_KEY)


def is_annotated(node: ir.Node) -> bool:
    """Whether a node reads or computes integers that represent real numbers."""
    return any(annotation(value) is not None for value in (*node.inputs, *node.outputs))


@contextmanager
def sealed(labels: Mapping[ir.Node, str]) -> Generator[None]:
    """Within it, these nodes are operators of a domain that only nodes of the same label share.

    No library knows what such an operator computes: two of them are equal only when their
    labels, types, inputs and attributes are.
    """
    domains = {node: node.domain for node in labels}
    try:
        for node, label in labels.items():
            node.domain = f"{_DOMAIN}.{label}"
        yield
    finally:
        for node, domain in domains.items():
            node.domain = domain
