"""Facts about ONNX models that several stages need.

Operator traits, composite operators, constant folding, unused nodes, operator sets, and inferred
types and shapes.
"""
