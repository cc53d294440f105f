"""What may be fused. A rule is a predicate; its docstring is its message."""
