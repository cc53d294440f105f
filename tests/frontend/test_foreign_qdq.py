"""Whole QDQ models from elsewhere, and our own read again."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from opu_fuse import zoo
from opu_fuse.frontend.prepare import prepare
from opu_fuse.quant import META_KEY

Absorbed = Callable[[onnx.ModelProto], ir.Model]


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


class _Images(CalibrationDataReader):
    def __init__(self, images: Iterable[np.ndarray]) -> None:
        self._images = iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._images, None)
        return None if image is None else {"input": image}


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
    shape = [int(d) for d in source.graph.inputs[0].shape or ()]  # type: ignore[arg-type]  # dimensions were fixed by `load`
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "int8.onnx",
        _Images(rng.standard_normal((4, *shape)).astype(np.float32)),
        quant_format=QuantFormat.QDQ,
        activation_type=activation,
        weight_type=weight,
        per_channel=per_channel,
        extra_options={"WeightSymmetric": True},
    )
    model = absorbed(onnx.load(tmp_path / "int8.onnx"))
    left = {"Conv", "Relu", "Add", "GlobalAveragePool", "Reshape", "Gemm", "LeakyRelu", "MaxPool"}
    assert set(types(model)) <= left
    for node in model.graph:
        assert META_KEY in node.outputs[0].meta, node.name
        if node.op_type in {"Conv", "Gemm"}:
            assert node.inputs[1].meta[META_KEY].axis == 0


def test_a_quantised_model_is_not_quantised_again():
    qdq_model = prepare(zoo.build("tiny_odd")).qdq
    assert qdq_model is not None
    again = prepare(qdq_model, calibration={"input": np.zeros((1, 3, 25, 23), np.float32)})
    assert again.warnings == ("the model is quantised already: the calibration data is not used",)
    assert again.qdq is not None
    assert [
        t.raw_data for t in again.qdq.graph.initializer if t.name == "conv1.weight_quantized"
    ] == [t.raw_data for t in qdq_model.graph.initializer if t.name == "conv1.weight_quantized"]


def test_a_quantised_model_without_its_integers_has_the_same_graph():
    qdq_model = prepare(zoo.build("tiny_residual")).qdq
    assert qdq_model is not None
    integer, floating = prepare(qdq_model), prepare(qdq_model, quantised=False)
    assert floating.qdq is None
    assert types(integer.canonical) == types(floating.canonical)
    for node in floating.canonical.graph:
        for value in (*node.inputs, *node.outputs):
            assert value is not None
            assert META_KEY not in value.meta
            assert value.dtype in {ir.DataType.FLOAT, ir.DataType.INT64}
