"""Layers quantised by ONNX Runtime alone: zero points other than 0, a scale for every value."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


class _Sample(CalibrationDataReader):
    def __init__(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._samples = iter([dict(inputs)])

    def get_next(self) -> Any:
        return next(self._samples, None)


def quantised_elsewhere(
    model: ir.Model,
    inputs: Mapping[str, np.ndarray],
    weights: QuantType | None = None,
    *,
    unsigned: bool = False,
) -> ir.Model:
    """The QDQ model; inputs: one sample, whose ranges become the scales. weights: their type, and
    that of activations, where weights have zero points and one scale a tensor; None: int8 without
    zero points, a scale for each channel, activations in uint8 where `unsigned`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        quantize_static(
            ir.to_proto(model),
            path,
            _Sample(inputs),
            quant_format=QuantFormat.QDQ,
            activation_type=weights or (QuantType.QUInt8 if unsigned else QuantType.QInt8),
            weight_type=weights or QuantType.QInt8,
            per_channel=weights is None,
            extra_options={"ActivationSymmetric": False, "WeightSymmetric": weights is None},
        )
        return ir.from_proto(onnx.load(path))
