"""The front end alone: the float graph that it makes of a float model computes the same."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.unrounded import join_inputs
from tests.fuzz.network_case import NetworkCase
from tests.fuzz.onnxruntime_runs import Arrays, run

_RELATIVE = 2e-4


def differences(case: NetworkCase, inputs: Arrays) -> Iterator[str]:
    """What is wrong with the canonical float form of a model that arrives as floats."""
    proto = case.proto()
    if any(n.op_type == "DequantizeLinear" for n in proto.graph.node):
        return  # quantised in part
    expected = run(proto, inputs)
    canonical = prepare(proto, quantised=False).canonical
    join_inputs(canonical.graph)
    got = run(ir.to_proto(canonical), inputs)
    for name, array in expected.items():
        if name not in got:
            yield f"the canonical form has no output {name!r}"
        elif array.shape != got[name].shape:
            yield f"canonical {name!r} is {got[name].shape} instead of {array.shape}"
        elif array.dtype.kind == "f":
            gap = np.abs(array.astype(np.float64) - got[name]).max(initial=0.0)
            if not gap <= _RELATIVE * max(np.abs(array).max(initial=0.0), 1.0):
                yield f"canonical {name!r} differs by {gap:g}"
