"""What the fuzzer asks of a run beside the user's own model: what only moves inputs is exact, and a
model that came quantised is met within its bounds.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.result import RunResult
from opu_fuse.sim.compare.users_model import of_model
from tests.fuzz.onnxruntime_runs import Arrays, run

_ONLY_MOVE = frozenset({"Concat", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"})


def wrong_beside(
    model: onnx.ModelProto, bundle: Bundle, inputs: Arrays, result: RunResult
) -> Iterator[str]:
    """model: as it was given to `compile`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        found = of_model(bundle, inputs, result, path)
    if found.why:
        yield f"not compared with the user's model: {found.why}"
    for output in found.outputs:
        if not output.passed:
            yield str(output)
    names = sorted(passed_on(model))
    for name, right in run(model, inputs, names).items() if names else ():
        if not np.array_equal(right, result.outputs[name], equal_nan=True):
            yield f"output {name!r} is not the input that it is made of"


def passed_on(model: onnx.ModelProto) -> set[str]:
    """Outputs that are made of inputs by what only moves numbers, for nobody else: those of the
    nodes that lie between are read by their like alone.
    """
    graph = model.graph
    constants = {t.name for t in graph.initializer}
    inputs = {i.name for i in graph.input} - constants
    constants |= {n.output[0] for n in graph.node if n.op_type == "Constant"}
    moved = set(inputs)
    for node in graph.node:
        read = [name for name in node.input if name and name not in constants]
        if node.op_type in _ONLY_MOVE and read and moved.issuperset(read):
            moved.update(node.output)
    for node in reversed(graph.node):
        if not moved.issuperset(node.output):
            moved.difference_update(set(node.input) - inputs)
    read = {name for node in graph.node for name in node.input} - inputs
    return {o.name for o in graph.output} & moved - read
