"""Whole QDQ models from elsewhere, and our own read again."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import opu_fuse
from opu_fuse import zoo
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.quant import META_KEY
from tests.some import some

Text = Callable[..., onnx.ModelProto]
Absorbed = Callable[[onnx.ModelProto], ir.Model]


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


SHUFFLED = """g (float[1,4,8,8] input) => (float[1,8,4,4] y)
<int64[5] apart = {1,2,4,8,8}, int64[4] whole = {1,8,8,8}, int64[2] halves = {4,4}>
{ c = Conv(input, w)  a = Relu(c)  b = Conv<group=4, pads=[1,1,1,1]>(input, d)
  j = Concat<axis=1>(a, b)  r = Reshape(j, apart)  t = Transpose<perm=[0,2,1,3,4]>(r)
  s = Reshape(t, whole)  l, k = Split<axis=1>(s, halves)  e = Conv(k, w)  f = Concat<axis=1>(l, e)
  y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(f) }"""


class _Images(CalibrationDataReader):
    def __init__(self, images: Iterable[np.ndarray]) -> None:
        self._images = iter(images)

    def get_next(self) -> Any:
        image = next(self._images, None)
        return None if image is None else {"input": image}


def quantised(
    folder: Path,
    images: np.ndarray,
    activation: QuantType,
    weight: QuantType,
    *,
    per_channel: bool = True,
) -> onnx.ModelProto:
    """`float.onnx` in a folder as ONNX Runtime's quantiser writes it."""
    quantize_static(
        folder / "float.onnx",
        folder / "int8.onnx",
        _Images(images),
        quant_format=QuantFormat.QDQ,
        activation_type=activation,
        weight_type=weight,
        per_channel=per_channel,
        extra_options={"WeightSymmetric": True},
    )
    return onnx.load(folder / "int8.onnx")


@pytest.mark.parametrize("name", ["tiny_residual", "tiny_odd"])
@pytest.mark.parametrize(
    ("activation", "weight", "per_channel"),
    [
        (QuantType.QUInt8, QuantType.QUInt8, False),
        (QuantType.QUInt8, QuantType.QInt8, True),
        (QuantType.QInt8, QuantType.QInt8, False),
    ],
)
def test_models_quantised_by_onnx_runtime_itself(
    tmp_path: Path,
    absorbed: Absorbed,
    name: str,
    activation: QuantType,
    weight: QuantType,
    per_channel: bool,
    rng: np.random.Generator,
):
    source = prepare(zoo.build(name), quantised=False).canonical
    ir.save(source, tmp_path / "float.onnx")
    images = rng.standard_normal((4, *some(source.graph.inputs[0].shape).numpy()), np.float32)
    int8 = quantised(tmp_path, images, activation, weight, per_channel=per_channel)
    model = absorbed(int8)
    left = {"Conv", "Relu", "Add", "GlobalAveragePool", "Reshape", "Gemm", "LeakyRelu", "MaxPool"}
    assert set(types(model)) <= left
    for node in model.graph:
        assert META_KEY in node.outputs[0].meta, node.name
        if node.op_type in {"Conv", "Gemm"}:
            assert some(node.inputs[1]).meta[META_KEY].axis == 0


def test_a_quantised_model_is_not_quantised_again():
    qdq_model = prepare(zoo.build("tiny_odd")).qdq
    assert qdq_model is not None
    again = prepare(qdq_model, calibration={"input": np.zeros((1, 3, 25, 23), np.float32)})
    assert again.warnings == ("the model is quantised already: the calibration data is not used",)
    assert again.qdq is not None
    assert [
        t.raw_data for t in again.qdq.graph.initializer if t.name == "conv1.weight_quantized"
    ] == [t.raw_data for t in qdq_model.graph.initializer if t.name == "conv1.weight_quantized"]


def test_a_quantised_model_stays_so_where_nothing_is_to_be_quantised():
    qdq_model = prepare(zoo.build("tiny_residual")).qdq
    assert qdq_model is not None
    asked, found = prepare(qdq_model), prepare(qdq_model, quantised=False)
    assert found.qdq == asked.qdq
    assert types(found.canonical) == types(asked.canonical)
    for node, same in zip(found.canonical.graph, asked.canonical.graph, strict=True):
        assert [v.meta.get(META_KEY) for v in node.outputs] == [
            v.meta.get(META_KEY) for v in same.outputs
        ]


@pytest.mark.parametrize("activation", [QuantType.QUInt8, QuantType.QInt8])
def test_a_shuffle_of_rank_5_between_pairs_runs(
    tmp_path: Path, onnx_text: Text, activation: QuantType, rng: np.random.Generator
):
    weights = {"w": rng.normal(size=(4, 4, 1, 1)), "d": rng.normal(size=(4, 1, 3, 3))}
    floats = {name: data.astype(np.float32) for name, data in weights.items()}
    onnx.save(onnx_text(SHUFFLED, **floats), tmp_path / "float.onnx")
    images = rng.standard_normal((4, 1, 4, 8, 8), np.float32)
    model = quantised(tmp_path, images, activation, QuantType.QInt8)
    program = opu_fuse.compile(model, opu_fuse.load_hw("opu-tiny"))
    inputs = {"input": images[0]}
    got, wanted = program.run(inputs).outputs["y"], session(model).run(None, inputs)[0]
    step = np.abs(np.diff(np.unique(np.asarray(wanted)))).min()
    assert np.abs(got - wanted).max() < 2.5 * step, "some steps of rounding, nothing moved"
    convolutions = [op for group in program.bundle.groups for op in group.ops if op.op == "conv"]
    assert len(convolutions) == 3
