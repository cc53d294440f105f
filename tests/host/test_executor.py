"""What the executor must get right beside what random chains cover."""

import numpy as np
import pytest

from opu_fuse.errors import InternalError, RunError
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.kernel import SCALAR_OPS, Kernel
from opu_fuse.host.run.generic import BLOCK_ELEMENTS, blocks, run_kernel
from opu_fuse.host.run.scalars import FUNCTIONS
from tests.host.sketch import binary, generic, read, run_all, same_bits, write
from tests.host.test_random_chains import by_element
from tests.some import some

ROW = "(d0, d1) -> (d0)"


def numbers(*shape):
    return np.random.default_rng(3).integers(-50, 50, shape).astype(np.int32)


def test_every_scalar_operation_has_a_function():
    assert set(FUNCTIONS) | {"const", "index", "cast"} == set(SCALAR_OPS)


def test_two_results_that_read_each_other_go_through_the_loop_together():
    def highest_and_where(body: Payload, x, best, place):
        better = body.emit("gt", x, best)
        here = body.cast(body.affine(read("", (), "(d0, d1) -> (d1)").map.results[0]), "int32")
        return body.emit("select", better, x, best), body.emit("select", better, here, place)

    op = generic(
        "argmax", "p4 r30", [read("x", (4, 30), "(d0, d1) -> (d0, d1)", "int32")],
        [
            write("best", (4,), ROW, "int32", fill="-100"),
            write("place", (4,), ROW, "int32", fill="-1"),
        ],
        highest_and_where,
    )  # fmt: skip
    x = numbers(4, 30)
    got = run_kernel(Kernel(op=op), {"x": x})
    assert (got["best"] == x.max(axis=1)).all()
    assert (got["place"] == x.argmax(axis=1)).all(), "the first of equals"


def test_a_result_made_from_what_another_held_gets_the_last_of_it():
    op = generic(
        "delay", "p4 r5", [read("x", (4, 5), "(d0, d1) -> (d0, d1)", "int32")],
        [
            write("now", (4,), ROW, "int32", fill="0"),
            write("before", (4,), ROW, "int32", fill="7"),
        ],
        lambda body, x, now, _: (body.emit("add", now, x), now),
    )  # fmt: skip
    values = {"x": numbers(4, 5)}
    got, expected = run_kernel(Kernel(op=op), values), by_element(op, values)
    assert (got["now"] == expected["now"]).all()
    assert (got["before"] == values["x"][:, :-1].sum(axis=1)).all()


def test_results_that_swap_what_they_started_from_do_not_see_each_others_new_elements():
    op = generic(
        "swap", "p6", [],
        [
            write("a", (6,), "(d0) -> (d0)", "int32", init="x"),
            write("b", (6,), "(d0) -> (d0)", "int32", init="y"),
        ],
        lambda _, a, b: (b, a),
    )  # fmt: skip
    x, y = numbers(2, 6)
    got = run_kernel(Kernel(op=op), {"x": x, "y": y})
    assert (got["a"] == y).all()
    assert (got["b"] == x).all()


def test_a_result_starts_from_its_init_which_stays_as_it_was():
    op = generic(
        "accumulate", "p3 r4", [read("x", (3, 4), "(d0, d1) -> (d0, d1)", "int32")],
        [write("y", (3,), ROW, "int32", init="start")], binary("add"),
    )  # fmt: skip
    values = {"x": numbers(3, 4), "start": np.array([100, 200, 300], np.int32)}
    got = run_kernel(Kernel(op=op), values)["y"]
    assert (got == values["start"] + values["x"].sum(axis=1)).all()
    assert (values["start"] == [100, 200, 300]).all()


def test_a_window_is_read_by_adding_loops():
    op = generic(
        "max_pool", "p4 w3", [read("x", (9,), "(d0, d1) -> (2*d0 + d1)", "int32")],
        [write("y", (4,), ROW, "int32", fill="-100")],
        lambda body, x, y: body.emit("max", y, x),
    )  # fmt: skip
    x = numbers(9)
    got = run_kernel(Kernel(op=op), {"x": x})["y"]
    assert (got == [x[2 * i : 2 * i + 3].max() for i in range(4)]).all()


def test_int8_sums_wrap_as_int8():
    op = generic(
        "total", "r300", [read("x", (300,), "(d0) -> (d0)", "int8")],
        [write("y", (), "(d0) -> ()", "int8", fill="0")], binary("add"),
    )  # fmt: skip
    x = np.random.default_rng(0).integers(-128, 128, 300).astype(np.int8)
    got = run_kernel(Kernel(op=op), {"x": x})["y"]
    assert got == x.sum(dtype=np.int8)
    assert got.dtype == np.int8


def test_sums_of_floats_do_not_depend_on_how_the_operand_lies_in_memory():
    shape = (40, 700)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    row = generic(
        "sum", "p40 r700", [read("x", shape, "(d0, d1) -> (d0, d1)")],
        [write("y", (40,), ROW, fill="0x0p+0")], binary("add"),
    )  # fmt: skip
    column = generic(
        "sum", "p40 r700", [read("x", shape[::-1], "(d0, d1) -> (d1, d0)")],
        [write("y", (40,), ROW, fill="0x0p+0")], binary("add"),
    )  # fmt: skip
    expected = run_kernel(Kernel(op=row), {"x": x})["y"]
    for op, data in ((row, np.asfortranarray(x)), (column, np.ascontiguousarray(x.T))):
        assert same_bits(run_kernel(Kernel(op=op), {"x": data})["y"], expected)
    assert len(blocks(row)) == 1
    alone = [run_kernel(Kernel(op=one_row(700)), {"x": x[i : i + 1]})["y"] for i in range(40)]
    assert same_bits(np.concatenate(alone), expected)


def one_row(columns):
    return generic(
        "sum", f"p1 r{columns}", [read("x", (1, columns), "(d0, d1) -> (d0, d1)")],
        [write("y", (1,), ROW, fill="0x0p+0")], binary("add"),
    )  # fmt: skip


@pytest.mark.parametrize("loops", ["p1 p7 p300 p300", "p1 p3 p600 p600", "p500000", "p2 p2 r99999"])
def test_blocks_cover_the_loop_once(loops):
    index = f"({', '.join(f'd{i}' for i in range(len(loops.split())))}) -> ()"
    parallel = loops.replace("r", "p")
    op = generic("x", parallel, [read("c", (), index)], [whole(loops)], lambda _, c, __: c)
    cuts = blocks(op)
    loop = some(cuts[0])[0]
    assert [some(cut)[1] for cut in cuts] == [0, *(some(cut)[2] for cut in cuts[:-1])]
    assert some(cuts[-1])[2] == op.extents[loop]
    rest = np.prod(op.extents) // op.extents[loop]
    assert all((end - first - 1) * rest < BLOCK_ELEMENTS for _, first, end in map(some, cuts))


def whole(loops):
    extents = [int(word[1:]) for word in loops.split()]
    names = ", ".join(f"d{i}" for i in range(len(extents)))
    return write("y", extents, f"({names}) -> ({names})")


def test_large_kernels_in_blocks_equal_one_pass(rng):
    shape = (3, 150, 151)
    op = generic(
        "mix", "p3 p150 p151",
        [
            read("x", shape, "(d0, d1, d2) -> (d0, d1, d2)"),
            read("t", (151, 150), "(d0, d1, d2) -> (d2, d1)"),
            read("c", (3,), "(d0, d1, d2) -> (d0)"),
        ],
        [write("y", (151, 3, 150), "(d0, d1, d2) -> (d2, d0, d1)")],
        lambda body, x, t, c, _: body.emit("add", body.emit("mul", x, t), c),
    )  # fmt: skip
    assert len(blocks(op)) > 1
    x, t, c = (rng.normal(size=s).astype(np.float32) for s in (shape, (151, 150), (3,)))
    got = run_all([op], {"x": x, "t": t, "c": c})["y"]
    assert same_bits(got, (x * t.T + c[:, None, None]).transpose(2, 0, 1))


def test_a_missing_or_wrong_value_is_named():
    op = generic(
        "neg", "p3", [read("x", (3,), "(d0) -> (d0)")], [write("y", (3,), "(d0) -> (d0)")],
        lambda body, x, _: body.emit("neg", x),
    )  # fmt: skip
    with pytest.raises(InternalError, match="neg needs x, which nothing has computed"):
        run_kernel(Kernel(op=op), {})
    with pytest.raises(InternalError, match=r"x is float64\[3\], neg reads float32\[3\]"):
        run_kernel(Kernel(op=op), {"x": np.zeros(3)})
    with pytest.raises(RunError, match=r"x is float32\[4\], neg reads float32\[3\]"):
        run_kernel(Kernel(op=op), {"x": np.zeros(4, np.float32)})


def test_infinities_and_nan_are_results_not_warnings():
    op = generic(
        "limits", "p3", [read("x", (3,), "(d0) -> (d0)")],
        [write("y", (3,), "(d0) -> (d0)"), write("z", (3,), "(d0) -> (d0)")],
        lambda body, x, *_: (
            body.emit("div", body.const(1, "float32"), x),
            body.emit("sqrt", body.const(-1, "float32")),
        ),
    )  # fmt: skip
    got = run_kernel(Kernel(op=op), {"x": np.array([0.0, -0.0, np.nan], np.float32)})
    assert same_bits(got["y"], np.array([np.inf, -np.inf, np.nan], np.float32))
    assert np.isnan(got["z"]).all()
