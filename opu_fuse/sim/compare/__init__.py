"""Tensors of two runs compared, with ONNX Runtime as the judge."""
