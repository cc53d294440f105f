"""Host operators of a network to what a program file holds: fused kernels and ONNX models."""
