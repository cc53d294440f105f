"""The model as text around passes."""

import logging

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from opu_fuse.passes import EVERY, FixedPoint, PassContext, PrintIR, model_text, module_pass
from tests.passes.recorder import model_of, recording
from tests.some import some

TEXT = """
g (float[1,2,4,4] x) => (float[1,3,2,2] y)
<float[3] bias = {1, 2, 3}>
{
  [conv] c = Conv <kernel_shape = [3, 3]> (x, weight, bias)
  [act] y = f.act (c)
}
<domain: "f", opset_import: ["" : 17]>
act (v) => (w) { w = Relu (v) }
"""


@pytest.fixture
def conv_model():
    model = model_of(TEXT)
    weight = np.arange(54, dtype=np.float32).reshape(3, 2, 3, 3)
    value = ir.Value(name="weight", const_value=ir.tensor(weight, name="weight"))
    value.dtype, value.shape = ir.DataType.FLOAT, ir.Shape(weight.shape)
    model.graph.register_initializer(value)
    model.graph.node(0).replace_input_with(1, value)
    return model


@module_pass(name="Rename")
def rename(model, _):
    node = model.graph.node(0)
    node.name = f"{node.name}_"
    return len(node.name) < 8


def test_small_constants_show_values_large_ones_their_shape(conv_model, golden):
    golden("model.txt", model_text(conv_model))


def test_the_text_is_the_same_every_time_and_leaves_the_model_alone(conv_model):
    first = model_text(conv_model)
    assert model_text(conv_model) == first == model_text(conv_model.clone())
    assert list(conv_model.graph.initializers) == ["bias", "weight"]
    assert conv_model.graph.initializers["weight"].const_value is not None


def test_the_text_with_its_comment_is_onnx_again(conv_model):
    texts = []
    with PassContext(instruments=[PrintIR(texts.append, after=[EVERY])]):
        recording("p", [])(conv_model)
    read = ir.from_proto(onnx.parser.parse_model(texts[0]))
    assert [node.op_type for node in read.graph] == ["Conv", "act"]
    assert some(read.graph.initializers["bias"].const_value).numpy().tolist() == [1, 2, 3]


def test_before_and_after_are_printed_for_the_named_passes_only(conv_model):
    texts = []
    instrument = PrintIR(texts.append, before=["Rename", "p"], after=["Rename"])
    with PassContext(instruments=[instrument]):
        for pass_ in (recording("p", []), rename, recording("q", [])):
            pass_(conv_model)
    assert [text.splitlines()[0] for text in texts] == [
        *("# IR before p", "# IR before Rename", "# IR after Rename")
    ]
    assert "[conv]" in texts[1]
    assert "[conv_]" in texts[2]


def test_repeated_passes_are_counted(conv_model):
    texts = []
    with PassContext(instruments=[PrintIR(texts.append, after=["Rename"])]):
        FixedPoint([rename])(conv_model)
    assert [text.splitlines()[0] for text in texts] == [
        "# IR after Rename",
        "# IR after Rename (run 2)",
        "# IR after Rename (run 3)",
        "# IR after Rename (run 4)",
    ]


def test_every_stands_for_all_passes(conv_model):
    texts = []
    with PassContext(instruments=[PrintIR(texts.append, before=[EVERY], after=[EVERY])]):
        recording("p", [])(conv_model)
        recording("q", [])(conv_model)
    comments = [text.splitlines()[0] for text in texts]
    assert comments == ["# IR before p", "# IR after p", "# IR before q", "# IR after q"]
    assert all(text.endswith("}") for text in texts)


def test_a_pass_that_never_ran_is_warned_about(conv_model, caplog):
    caplog.set_level(logging.WARNING)
    with PassContext(instruments=[PrintIR([].append, after=["p", "missing", EVERY])]):
        recording("p", [])(conv_model)
    assert [record.getMessage() for record in caplog.records] == [
        "pass missing did not run, so there is no IR of it to print"
    ]
