"""The nine worked examples of MLIR's element-wise fusion, literally; each is executed too."""

import numpy as np
import pytest

from opu_fuse.errors import InternalError
from opu_fuse.host.build.linalg.driver import fuse_greedily
from opu_fuse.host.build.linalg.fusion import fuse_elementwise
from opu_fuse.host.build.linalg.pair import Pair, preserved_results
from opu_fuse.host.build.linalg.rewrites import fold_splats
from opu_fuse.host.build.linalg.rules import refusal
from opu_fuse.host.kernel import Kernel
from opu_fuse.host.run.generic import run_kernel
from tests.host.sketch import binary, generic, maps_of, ops_of, read, run_all, same_bits, write

ID2 = "(d0, d1) -> (d0, d1)"


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def agrees(fused, ops, values, names):
    """The fused operator gives the bits that running the operators in turn gives."""
    expected = run_all(ops, values)
    got = run_kernel(Kernel(op=fused), values)
    assert set(got) == set(names)
    assert all(same_bits(got[n], expected[n]) for n in names)


def test_1_add_into_multiply_has_three_inputs_and_payload_add_mul():
    add = generic(
        "add", "p4 p3", [read("a", (4, 3), ID2), read("b", (4, 3), ID2)],
        [write("s", (4, 3), ID2)], binary("add"),
    )  # fmt: skip
    mul = generic(
        "mul", "p4 p3", [read("s", (4, 3), ID2), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    fused = fuse_elementwise(add, mul, 0)
    assert [x.value for x in fused.inputs] == ["a", "b", "c"]
    assert maps_of(fused) == [ID2] * 3
    assert ops_of(fused) == ["add", "mul"]
    values = {"a": normal(4, 3), "b": normal(4, 3) - 1, "c": normal(4, 3) * 2}
    agrees(fused, [add, mul], values, ["y"])


def test_2_the_transpose_of_an_operand_of_the_producer_stays_on_that_operand():
    transposed = "(d0, d1) -> (d1, d0)"
    add = generic(
        "add", "p4 p3", [read("a", (4, 3), ID2), read("b", (3, 4), transposed)],
        [write("s", (4, 3), ID2)], binary("add"),
    )  # fmt: skip
    mul = generic(
        "mul", "p4 p3", [read("s", (4, 3), ID2), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    fused = fuse_elementwise(add, mul, 0)
    assert maps_of(fused) == [ID2, transposed, ID2]
    values = {"a": normal(4, 3), "b": normal(3, 4), "c": normal(4, 3)}
    agrees(fused, [add, mul], values, ["y"])


def test_3_scalars_keep_their_map_to_nothing():
    nothing = "(d0, d1) -> ()"
    add = generic(
        "add", "p4 p3", [read("a", (4, 3), ID2), read("scale", (), nothing)],
        [write("s", (4, 3), ID2)], binary("add"),
    )  # fmt: skip
    mul = generic(
        "mul", "p4 p3", [read("s", (4, 3), ID2), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    fused = fuse_elementwise(add, mul, 0)
    assert maps_of(fused) == [ID2, nothing, ID2]
    values = {"a": normal(4, 3), "scale": np.array(0.5, np.float32), "c": normal(4, 3)}
    agrees(fused, [add, mul], values, ["y"])


def test_4_a_vector_sum_broadcast_into_a_matrix_is_read_by_row():
    vector, row = "(d0) -> (d0)", "(d0, d1) -> (d0)"
    add = generic(
        "add", "p4", [read("a", (4,), vector), read("b", (4,), vector)],
        [write("s", (4,), vector)], binary("add"),
    )  # fmt: skip
    mul = generic(
        "mul", "p4 p3", [read("s", (4,), row), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    fused = fuse_elementwise(add, mul, 0)
    assert maps_of(fused) == [row, row, ID2]
    values = {"a": normal(4), "b": normal(4) + 1, "c": normal(4, 3)}
    agrees(fused, [add, mul], values, ["y"])


def test_5_indices_of_a_producer_with_a_transposed_result_swap():
    transposed = "(d0, d1) -> (d1, d0)"

    def weigh_indices(body, x, _):
        rows = body.affine(read("", (), "(d0, d1) -> (5*d0 - d1)").map.results[0])
        return body.emit("add", x, body.cast(rows, "float32"))

    number = generic(
        "number", "p3 p4", [read("a", (3, 4), ID2)], [write("s", (4, 3), transposed)], weigh_indices
    )
    double = generic(
        "double", "p4 p3", [read("s", (4, 3), ID2), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    assert [i.dim for i in number.body if i.op == "index"] == [0, 1]
    fused = fuse_elementwise(number, double, 0)
    assert [i.dim for i in fused.body if i.op == "index"] == [1, 0]
    assert maps_of(fused) == [transposed, ID2]
    agrees(fused, [number, double], {"a": normal(3, 4), "c": normal(4, 3)}, ["y"])


def test_6_an_add_feeding_a_reduction_is_read_by_the_reductions_loop():
    add = generic(
        "add", "p1 p5", [read("a", (1, 5), ID2), read("b", (1, 5), ID2)],
        [write("s", (1, 5), ID2)], binary("add"),
    )  # fmt: skip
    total = generic(
        "total", "r5", [read("s", (1, 5), "(d0) -> (0, d0)")],
        [write("y", (), "(d0) -> ()", fill="0x0p+0")], binary("add"),
    )  # fmt: skip
    fused = fuse_elementwise(add, total, 0)
    assert maps_of(fused) == ["(d0) -> (0, d0)"] * 2
    assert [loop.kind for loop in fused.loops] == ["reduction"]
    assert ops_of(fused) == ["add", "add"]
    agrees(fused, [add, total], {"a": normal(1, 5), "b": normal(1, 5) + 2}, ["y"])


def test_7_a_scalar_spread_over_a_reduction_is_not_fused_since_no_operand_would_bound_its_loop():
    spread = generic(
        "spread", "p4 p3", [read("x", (), "(d0, d1) -> ()")],
        [write("s", (4, 3), ID2)], lambda _, x, __: x,
    )  # fmt: skip
    highest = generic(
        "highest", "p3 r4", [read("s", (4, 3), "(d0, d1) -> (d1, d0)")],
        [write("y", (3,), "(d0, d1) -> (d0)", fill="-inf")], binary("max"),
    )  # fmt: skip
    pair = Pair(producer=spread, consumer=highest, operand=0)
    no = refusal(pair)
    assert no is not None
    assert no.rule == "loops_keep_bounds"
    assert no.text == ("highest gathers, and without s no operand would bound loop d1")
    assert preserved_results(pair) == (0,), "dropping s would lose a bound"
    with pytest.raises(InternalError, match="loops_keep_bounds"):
        fuse_elementwise(spread, highest, 0)
    assert fuse_greedily([spread, highest], {"y"}).members == (spread, highest)


def test_8_a_constant_feeding_a_reduction_is_not_folded():
    ones = np.ones((4, 3), np.float32)
    total = generic(
        "total", "p4 r3", [read("ones", (4, 3), ID2)],
        [write("y", (4,), "(d0, d1) -> (d0)", fill="0x0p+0")], binary("add"),
    )  # fmt: skip
    assert fold_splats(total, {"ones": ones}) is total
    shift = generic(
        "shift", "p4 p3", [read("a", (4, 3), ID2), read("ones", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("add"),
    )  # fmt: skip
    folded = fold_splats(shift, {"ones": ones})
    assert [x.value for x in folded.inputs] == ["a"], "where nothing is gathered, it is"
    agrees(folded, [shift], {"a": normal(4, 3), "ones": ones}, ["y"])


def two_results():
    def both(body, a, b, *_):
        return body.emit("add", a, b), body.emit("mul", a, b)

    producer = generic(
        "both", "p4 p3", [read("a", (4, 3), ID2), read("b", (4, 3), ID2)],
        [write("s", (4, 3), ID2), write("t", (4, 3), ID2)], both,
    )  # fmt: skip
    consumer = generic(
        "sub", "p4 p3", [read("s", (4, 3), ID2), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("sub"),
    )  # fmt: skip
    return producer, consumer


def test_9_of_two_results_the_unused_one_is_dropped():
    producer, consumer = two_results()
    fused = fuse_elementwise(producer, consumer, 0)
    assert [r.value for r in fused.results] == ["y"]
    values = {"a": normal(4, 3), "b": normal(4, 3), "c": normal(4, 3)}
    agrees(fused, [producer, consumer], values, ["y"])


def test_9_of_two_results_used_elsewhere_the_fused_operator_has_three():
    producer, consumer = two_results()
    fused = fuse_elementwise(producer, consumer, 0, preserved={"s", "t"})
    assert [r.value for r in fused.results] == ["s", "t", "y"], "the producer's stand first"
    values = {"a": normal(4, 3), "b": normal(4, 3), "c": normal(4, 3)}
    agrees(fused, [producer, consumer], values, ["s", "t", "y"])
