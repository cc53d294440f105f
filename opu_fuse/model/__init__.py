"""Facts about ONNX models that several stages ask for: traits of operators, what is one operator
together, what folds, what nobody reads, which operator sets there are, types and shapes of values.
"""
