"""Sequences whose length is known become the tensors that they hold."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.qdq_reference import session

Text = Callable[..., onnx.ModelProto]

CASES = {
    "equal parts": """s = SplitToSequence<axis=1>(x, two) a = SequenceAt(s, one)
        c = SequenceAt(s, zero) y = Concat<axis=1>(a, c)""",
    "a shorter last part": """s = SplitToSequence<axis=1>(x, four) a = SequenceAt(s, one)
        c = SequenceAt(s, zero) y = Concat<axis=1>(a, c)""",
    "listed parts": """s = SplitToSequence<axis=-3>(x, parts) a = SequenceAt(s, last)
        c = SequenceAt(s, zero) y = Concat<axis=1>(a, c)""",
    "each alone": "s = SplitToSequence<axis=2>(x) y = SequenceAt(s, last)",
    "each alone, without the axis": """s = SplitToSequence<axis=2, keepdims=0>(x)
        y = SequenceAt(s, last)""",
    "keepdims does not matter with lengths": """s = SplitToSequence<axis=1, keepdims=0>(x, parts)
        y = SequenceAt(s, zero)""",
    "how many": """s = SplitToSequence<axis=1>(x, four) n = SequenceLength(s) f = Cast<to=1>(n)
        y = Mul(x, f)""",
    "joined": "s = SequenceConstruct(x, x) y = ConcatFromSequence<axis=1>(s)",
    "joined along a new axis": """s = SplitToSequence<axis=2, keepdims=0>(x)
        y = ConcatFromSequence<axis=0, new_axis=1>(s)""",
    "inserted and erased": """r = Relu(x) n = Neg(x) s = SequenceConstruct(x, r)
        t = SequenceInsert(s, n, one) u = SequenceInsert(t, x) v = SequenceErase(u, zero)
        y = ConcatFromSequence<axis=1>(v)""",
    "from nothing": """e = SequenceEmpty() r = Relu(x) s = SequenceInsert(e, r)
        y = SequenceAt(s, zero)""",
    "an element that was there": "s = SequenceConstruct(x, x) y = SequenceAt(s, zero)",
}
CONSTANTS = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "two": np.int64(3),
    "four": np.int64(4),
    "last": np.int64(-1),
    "parts": np.array([2, 1, 3], np.int64),
}


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("name", CASES)
def test_the_tensors_are_those_of_the_sequence(name: str, opset: int, onnx_text: Text):
    text = f"g (float[1,6,5,4] x) => (float y) {{ {CASES[name]} }}"
    model = onnx_text(text, opset=opset, **CONSTANTS)
    loaded = load_model(model)
    assert not [n.op_type for n in loaded.graph if "Sequence" in n.op_type]
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 4)).astype(np.float32)
    (wanted,) = session(model).run(None, {"x": x})
    (got,) = session(ir.to_proto(loaded)).run(None, {"x": x})
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "nodes",
    [
        "i = Cast<to=7>(k) s = SequenceConstruct(x, x) y = SequenceAt(s, i)",
        "l = Cast<to=7>(k) s = SplitToSequence<axis=1>(x, l) y = SequenceAt(s, zero)",
    ],
)
def test_what_depends_on_data_is_refused(nodes: str, onnx_text: Text):
    text = f"g (float[1,6,5,4] x, float k) => (float[1,6,5,4] y) {{ {nodes} }}"
    with pytest.raises(ModelError, match="'s' is a sequence; only tensors of numbers"):
        load_model(onnx_text(text, **CONSTANTS))
