"""The legality rules. A rule is a predicate; its docstring is its message."""
