"""Facts about ONNX models that several stages ask for: what is one operator together, what folds,
what nobody reads, which operator sets there are, which types and shapes values have.
"""
