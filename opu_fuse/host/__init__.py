"""Operators that run on the host CPU.

kernel        a generic operator: loop nest, affine maps, scalar payload
kernel_check  what makes one meaningful
build/        host operators of a network to kernels and ONNX models (imported by `codegen`)
run/          executing them (imported by `sim`)
"""
