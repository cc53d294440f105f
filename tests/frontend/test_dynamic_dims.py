"""Sizes of dynamic dimensions, given with the model."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest

from opu_fuse import load_hw, pipeline
from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.dynamic_dims import Sizes
from opu_fuse.frontend.importing.load import load

Text = Callable[..., onnx.ModelProto]
TWO = """net (float[N,3,height,width] x, float[N,3,height,?] v) => (float[N,4,h,w] y)
{ c = Concat<axis=3>(x, v)  y = Conv(c, k) }"""
WEIGHT = np.ones((4, 3, 3, 3), np.float32)


def shapes(model: onnx.ModelProto, sizes: Sizes) -> list[list[int]]:
    return [[*v.shape.numpy()] for v in load(model, sizes=sizes).model.graph.inputs if v.shape]


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(shapes={"x": (1, 3, 8, 6), "v": (1, 3, 8, 5)}),
        Sizes(shapes={"v": (1, 3, 8, 5)}, dims={"width": 6}),
        Sizes(shapes={"x": (1, 3, 8, 6), "v": (1, 3, 8, 5)}, dims={"height": 8, "N": 1}),
    ],
)
def test_a_size_holds_wherever_its_name_stands(sizes: Sizes, onnx_text: Text):
    model = onnx_text(TWO, k=WEIGHT)
    assert shapes(model, sizes) == [[1, 3, 8, 6], [1, 3, 8, 5]]
    assert model.graph.input[0].type.tensor_type.shape.dim[2].dim_param == "height"


WRONG: Mapping[str, tuple[Mapping[str, Sequence[int]], Mapping[str, int], str]] = {
    "an input": ({"X1": (1,)}, {}, "no input is called 'X1'; it has 'v', 'x'$"),
    "a dimension": ({}, {"heigth": 8}, "dimension is called 'heigth'; did you mean 'height'"),
    "a rank": ({"x": (3, 8, 6)}, {}, r"'x': it has 4 dimensions \(N,3,height,width\), 3,8,6 has 3"),
    "a fixed one": ({"x": (1, 4, 8, 6)}, {}, "'x': its dimension 1 is 3, the shape 1,4,8,6 says 4"),
    "both": ({"x": (1, 3, 8, 6)}, {"height": 9}, "its dimension 2 is 9, the shape 1,3,8,6 says 8"),
    "two inputs": (
        {"x": (1, 3, 8, 6), "v": (1, 3, 7, 6)},
        {},
        "input 'v': its dimension 2 is 8, the shape 1,3,7,6 says 7",
    ),
    "a batch": (
        {"v": (4, 3, 8, 5)},
        {"width": 6},
        "'x' has batch 4, .*open: give no size for it .*with batch=4$",
    ),
    "a zero": ({}, {"height": 0}, "dimension 'height': it cannot be 0"),
    "no size at all": ({}, {}, r"with dims={'height': …} or shapes={'x': \(1,3,height,width\)}"),
    "one without a name": (
        {"x": (1, 3, 8, 6)},
        {},
        r"dimension 3 of input 'v' is dynamic; .* shapes={'v': \(1,3,8,\?\)}, all in numbers",
    ),
}


def test_sizes_that_the_network_cannot_take_are_called_so(onnx_text: Text):
    body = """net (float[1,1,height,8] x) => (float[1,1,h,8] y)
    { p = MaxPool<kernel_shape=[2,1], strides=[2,1]>(x)  u = Resize<mode="nearest">(p, , twice)
      y = Add(x, u) }"""
    model = onnx_text(body, twice=np.array([1, 1, 2, 1], np.float32))
    assert shapes(model, Sizes(dims={"height": 6})) == [[1, 1, 6, 8]]
    words = r"invalid at these sizes \(.*Add.*\); give sizes that it can take"
    with pytest.raises(ModelError, match=words):
        load(model, sizes=Sizes(dims={"height": 7}))


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_sizes_are_one_line(kind: str, onnx_text: Text):
    given, dims, message = WRONG[kind]
    with pytest.raises(ModelError, match=message) as refused:
        shapes(onnx_text(TWO, k=WEIGHT), Sizes(shapes=given, dims=dims))
    assert "\n" not in str(refused.value)


def test_an_input_without_a_shape_gets_one(onnx_text: Text):
    model = onnx_text("net (float[a] x) => (float[1,4,h,w] y) { y = Conv(x, k) }", k=WEIGHT)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert shapes(model, Sizes(shapes={"x": (1, 3, 8, 8)})) == [[1, 3, 8, 8]]
    with pytest.raises(ModelError, match=r"has no shape; give one with shapes={'x': \(1,…\)}"):
        load(model)


def test_minus_one_is_no_size(onnx_text: Text):
    model = onnx_text("net (float[1,3,h,w] x) => (float[1,4,h,w] y) { y = Conv(x, k) }", k=WEIGHT)
    for value in (*model.graph.input, *model.graph.output):
        for dim in (value.type.tensor_type.shape.dim[i] for i in (0, 2, 3)):
            dim.dim_value = -1
    assert shapes(model, Sizes(shapes={"x": (1, 3, 8, 8)})) == [[1, 3, 8, 8]]
    with pytest.raises(ModelError, match=r"dimension 2 of input 'x' is dynamic; fix it with"):
        load(model)


def test_a_question_mark_is_no_name(onnx_text: Text):
    model = onnx_text("net (float[1,3,h,w] x) => (float[1,4,h,w] y) { y = Conv(x, k) }", k=WEIGHT)
    for value in (*model.graph.input, *model.graph.output):
        for dim in (value.type.tensor_type.shape.dim[i] for i in (2, 3)):
            dim.dim_param = "?"
    assert shapes(model, Sizes(shapes={"x": (1, 3, 8, 6)})) == [[1, 3, 8, 6]]
    with pytest.raises(ModelError, match=r"fix it with shapes={'x': \(1,3,"):
        load(model)


def test_programs_and_groups_have_the_sizes_that_are_given(onnx_text: Text):
    hw, model = load_hw("opu-tiny"), onnx_text(TWO, k=WEIGHT)
    sizes = Sizes(shapes={"v": (1, 3, 8, 5)}, dims={"width": 6})
    program = pipeline.compile(model, hw, shapes=sizes.shapes, dims=sizes.dims)
    assert [p.shape for p in program.bundle.inputs] == [(1, 3, 8, 6), (1, 3, 8, 5)]
    assert len(pipeline.partition(model, hw, shapes=sizes.shapes, dims=sizes.dims).groups) >= 1  # type: ignore[arg-type]  # as above
