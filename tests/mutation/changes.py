"""Small changes of a source, each a mistake that somebody could make."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

SWAPS: dict[type, type] = {
    one: other
    for pair in (
        (ast.Add, ast.Sub),
        (ast.Mult, ast.FloorDiv),
        (ast.LShift, ast.RShift),
        (ast.BitAnd, ast.BitOr),
        (ast.Lt, ast.LtE),
        (ast.Gt, ast.GtE),
        (ast.Eq, ast.NotEq),
        (ast.In, ast.NotIn),
        (ast.Is, ast.IsNot),
        (ast.And, ast.Or),
    )
    for one, other in (pair, pair[::-1])
} | {ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}

NAMES = {
    one: other
    for pair in (("min", "max"), ("minimum", "maximum"), ("any", "all"), ("zeros", "ones"))
    for one, other in (pair, pair[::-1])
} | {"rint": "floor", "ceil": "floor", "floor": "ceil", "reversed": "list", "sorted": "list"}

UNSEEN = ("annotation", "returns", "decorator_list")
"""Fields that do not act when a module runs."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed source; the change is known by its line's text and what stands where in it, with a
    number from the second place on.
    """

    line: int
    text: str
    change: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every change of a source, one at a time, always in the same order."""
    tree, lines = ast.parse(source), source.splitlines()
    seen: Counter[tuple[int, str]] = Counter()
    for node in _acting(tree):
        before = _first_line(node)
        line = (node.target if isinstance(node, ast.comprehension) else node).lineno
        for field, value in [*_changes(node)]:
            kept = getattr(node, field)
            setattr(node, field, value)
            change = f"{before} → {_first_line(node)}"
            seen[line, change] += 1
            if seen[line, change] > 1:
                change = f"{change} ({seen[line, change]})"
            yield Mutant(line, lines[line - 1].strip(), change, ast.unparse(tree))
            setattr(node, field, kept)


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0].strip()


def _acting(node: ast.AST) -> Iterator[ast.stmt | ast.expr | ast.comprehension]:
    """Nodes that act: texts, assertions and what is raised stay as they are."""
    if isinstance(node, ast.stmt | ast.expr | ast.comprehension):
        yield node
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
        return
    for field, value in ast.iter_fields(node):
        if field not in UNSEEN:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _acting(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """(field, another value of it)."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            yield "op", SWAPS[type(op)]()
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield "ops", [*ops[:i], SWAPS[type(op)](), *ops[i + 1 :]]
        case ast.If() | ast.IfExp():
            yield from (("test", ast.Constant(value)) for value in (True, False))
        case ast.comprehension(ifs=[_, *_]):
            yield "ifs", []
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield "id", NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            yield "attr", NAMES[name]
        case ast.Expr(value=ast.Call()):
            yield "value", ast.Constant(None)
        case _:
            yield from _other_numbers(node)


def _other_numbers(node: ast.AST) -> Iterator[tuple[str, object]]:
    match node:
        case ast.UnaryOp(op=ast.USub()):
            yield "op", ast.UAdd()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.Constant(value=bool(value)):
            yield "value", not value
        case ast.Constant(value=int(value) | float(value)):
            yield "value", value + 1
