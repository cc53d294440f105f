"""Fusing changes no bit: random operators, run one after the other and fused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.affine import Affine, AffineMap, loops_map
from opu_fuse.host.build.linalg.control import always, at_most_live_values, at_most_ops, one_use
from opu_fuse.host.build.linalg.driver import fuse_greedily
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.kernel import GenericOp, Input, Iterator, Kernel, Loop, Result, literal
from opu_fuse.host.kernel_check import checked
from opu_fuse.host.run import generic as executor
from opu_fuse.host.run.generic import run_kernel
from tests.host.sketch import generic_members, run_all, same_bits

CONTROLS = {
    "one use": one_use,
    "always": always,
    "6 operations": at_most_ops(6),
    "4 live values": at_most_live_values(4),
}
BINARY = ("add", "sub", "mul", "max", "min")
UNARY = {"float32": ("neg", "abs", "sqrt", "round", "floor", "sign"), "int32": ("neg", "abs")}


@st.composite
def networks(draw, dtype="float32"):
    """(operators in order, values given, names needed). Operators read earlier values through
    permuting, broadcasting, reversing and partial maps, and may gather or use their indices.
    """
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    shapes = {"x0": tuple(sizes), "x1": tuple(sizes), "v": (sizes[-1],), "c": ()}
    ops = []
    for number in range(draw(st.integers(1, 7))):
        shape = tuple(draw(st.permutations(sizes)))
        gathers = len(shape) > 1 and draw(st.integers(0, 5)) == 0
        reads = []
        for _ in range(draw(st.integers(1, 3))):
            names = [*sorted(shapes), *[next(reversed(shapes))] * (2 * len(shapes))]
            name = draw(st.sampled_from(names))
            index = draw(maps_into(shapes[name], shape))
            reads.append(Input(value=name, shape=shapes[name], dtype=dtype, map=index))
        op = draw(operators(f"y{number}", shape, reads, dtype, gathers=gathers))
        ops.append(op)
        shapes |= {r.value: r.shape for r in op.results}
    made = [r.value for op in ops for r in op.results]
    needed = {made[-1], *draw(st.sets(st.sampled_from(made)))}
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    values = {}
    for name, shape in shapes.items():
        if name not in made:
            floats = dtype == "float32"
            data = rng.normal(size=shape) * 4 if floats else rng.integers(-99, 99, shape)
            values[name] = np.asarray(data, dtype)
    return ops, values, needed


@st.composite
def maps_into(draw, shape, loops):
    """A map that reads a tensor of this shape somewhere inside over loops of these extents: mostly
    a permutation or a broadcast.
    """
    if draw(st.integers(0, 4)) > 0:
        left, order = list(range(len(loops))), []
        for size in shape:
            same = [i for i in left if loops[i] == size]
            if same:
                order.append(draw(st.sampled_from(same)))
                left.remove(order[-1])
        if len(order) == len(shape):
            return loops_map(len(loops), order)
    results = []
    for size in shape:
        fitting = [i for i, extent in enumerate(loops) if extent <= size]
        kind = draw(st.sampled_from(["loop", "loop", "loop", "back", "fixed"]))
        if kind == "fixed" or not fitting:
            results.append(Affine(offset=draw(st.integers(0, size - 1))))
            continue
        loop = draw(st.sampled_from(fitting))
        first = draw(st.integers(0, size - loops[loop])) if kind == "back" else 0
        if kind == "back":
            results.append(Affine(terms=((loop, -1),), offset=first + loops[loop] - 1))
        else:
            results.append(Affine(terms=((loop, 1),)))
    return AffineMap(dims=len(loops), results=tuple(results))


@st.composite
def operators(draw, name, loops, reads, dtype, *, gathers):
    kinds = [Iterator.PARALLEL] * len(loops)
    if gathers:
        kinds[draw(st.integers(0, len(loops) - 1))] = Iterator.REDUCTION
    own = [i for i, kind in enumerate(kinds) if kind is Iterator.PARALLEL]
    order = draw(st.permutations(own))
    count = 1 if gathers else draw(st.sampled_from([1, 1, 2]))
    fill = literal(np.dtype(dtype).type(0)) if gathers else None
    results = [
        Result(
            value=f"{name}{'ab'[k]}",
            shape=tuple(loops[i] for i in order),
            dtype=dtype,
            map=loops_map(len(loops), order),
            fill=fill,
        )
        for k in range(count)
    ]
    body = Payload([x.dtype for x in (*reads, *results)])
    known = list(range(len(reads)))
    for _ in range(draw(st.integers(0, 3))):
        how = draw(st.sampled_from(["unary", "binary", "binary", "index", "select"]))
        a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        if how == "unary":
            known.append(body.emit(draw(st.sampled_from(UNARY[dtype])), a))
        elif how == "binary":
            known.append(body.emit(draw(st.sampled_from(BINARY)), a, b))
        elif how == "index":
            loop = Affine(terms=((draw(st.integers(0, len(loops) - 1)), 3),), offset=-2)
            known.append(body.cast(body.affine(loop), dtype))
        else:
            known.append(body.emit("select", body.emit("lt", a, b), a, b))
    yields = [known[-1], draw(st.sampled_from(known))][:count]
    if gathers:
        how = draw(st.sampled_from(["add", "max", "min", "step"]))
        value = len(reads)
        if how == "step":  # the recurrence numpy has no single call for
            value = body.emit("sub", known[-1], value)
        else:
            value = body.emit(how, value, known[-1])
        yields = [value]
    return checked(
        GenericOp(
            name=name,
            loops=tuple(Loop(kind=k, extent=n) for k, n in zip(kinds, loops, strict=True)),
            inputs=tuple(reads),
            results=tuple(results),
            body=body.instructions,
            yields=tuple(yields),
        )
    )


def assert_same(ops, values, needed, control):
    expected = run_all(ops, values)
    fused = fuse_greedily(ops, needed, control=control)
    got = run_all(generic_members(fused), values)
    for name in sorted(needed):
        assert same_bits(got[name], expected[name]), name
    assert {i for origins in fused.origins for i in origins} <= set(range(len(ops)))


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@settings(max_examples=25)
@given(data=st.data())
def test_fused_operators_give_the_same_bits_as_one_after_the_other(control, dtype, data):
    ops, values, needed = data.draw(networks(dtype))
    assert_same(ops, values, needed, CONTROLS[control])


@settings(max_examples=25)
@given(networks())
def test_constants_known_in_advance_change_nothing(network):
    ops, values, needed = network
    values = {n: np.full_like(x, x.flat[0]) for n, x in values.items()}
    expected = run_all(ops, values)
    fused = fuse_greedily(ops, needed, control=always, constants=values)
    got = run_all(generic_members(fused), values)
    assert all(same_bits(got[name], expected[name]) for name in needed)


@settings(max_examples=25)
@given(networks(), st.integers(1, 9))
def test_cutting_the_work_into_blocks_changes_nothing(network, elements):
    ops, values, needed = network
    expected = run_all(ops, values)
    before = executor.BLOCK_ELEMENTS
    executor.BLOCK_ELEMENTS = elements
    try:
        got = run_all(ops, values)
    finally:
        executor.BLOCK_ELEMENTS = before
    assert all(same_bits(got[name], expected[name]) for name in needed)


@settings(max_examples=40)
@given(networks("int32"))
def test_the_executor_agrees_with_a_loop_over_the_elements(network):
    ops, values, _ = network
    known = dict(values)
    for op in ops:
        expected = by_element(op, known)
        got = run_kernel(Kernel(op=op), known)
        assert all(same_bits(got[name], expected[name]) for name in got)
        known |= got


SCALARS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
    "neg": lambda a: -a,
    "abs": abs,
    "lt": lambda a, b: a < b,
    "select": lambda c, a, b: a if c else b,
    "cast": lambda a: a,
}


def by_element(op, values):
    """Results of an int32 operator by the definition, in Python's integers."""

    def wrap(number):
        return (number + 2**31) % 2**32 - 2**31

    results = {
        r.value: np.full(r.shape, int(r.fill or 0), object).reshape(r.shape) for r in op.results
    }
    for point in np.ndindex(*op.extents):
        numbers = [int(values[x.value][x.map.index(point)]) for x in op.inputs]
        numbers += [results[r.value][r.map.index(point)] for r in op.results]
        for i in op.body:
            match i.op:
                case "const":
                    numbers.append(int(i.literal))
                case "index":
                    numbers.append(point[i.dim])
                case _:
                    numbers.append(SCALARS[i.op](*(numbers[a] for a in i.args)))
            if i.dtype == "int32":
                numbers[-1] = wrap(numbers[-1])
        for r, y in zip(op.results, op.yields, strict=True):
            results[r.value][r.map.index(point)] = numbers[y]
    return {name: data.astype(np.int32) for name, data in results.items()}
