"""Executing what a program keeps on the host: kernels with numpy, models in ONNX Runtime."""
