"""Names and origins: every node gets a unique name and remembers itself as its origin."""

from collections import Counter

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.frontend.editing import SOURCE_KEY


def name_everything(model: ir.Model) -> None:
    """Unnamed nodes become `<OpType>_<n>`; of equal names the later ones get `_<n>`; values without
    a name get one. Nodes that have no origin yet become their own."""
    taken = {node.name for node in model.graph if node.name}
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    for node in model.graph:
        name = node.name or ""
        while not name or name in seen or (not node.name and name in taken):
            base = node.name or node.op_type
            name = f"{base}_{counts[base]}"
            counts[base] += 1
        node.name = name
        seen.add(name)
        node.metadata_props.setdefault(SOURCE_KEY, name)
    common.NameFixPass()(model)
