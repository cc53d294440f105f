"""Every rule of fusing, with its message; what is preserved; rewrites; control functions."""

from pathlib import Path

import numpy as np
import pytest

from opu_fuse.host.build.linalg.control import (
    Candidate,
    always,
    at_most_live_values,
    at_most_ops,
    live_values,
    one_use,
)
from opu_fuse.host.build.linalg.driver import Opaque, fuse_greedily
from opu_fuse.host.build.linalg.fusion import fuse_elementwise
from opu_fuse.host.build.linalg.pair import Pair, preserved_results
from opu_fuse.host.build.linalg.rewrites import (
    drop_results,
    drop_unused_inits,
    drop_unused_inputs,
    fold_equal_inputs,
    fold_fill,
    fold_splats,
    splat,
)
from opu_fuse.host.build.linalg.rules import FUSION_RULES, MESSAGES, refusal
from opu_fuse.host.kernel import Kernel
from opu_fuse.host.run.generic import run_kernel
from tests.host.sketch import (
    binary,
    generic,
    generic_members,
    maps_of,
    ops_of,
    read,
    run_all,
    same_bits,
    write,
)
from tests.some import some

ID1, ID2, ROW = "(d0) -> (d0)", "(d0, d1) -> (d0, d1)", "(d0, d1) -> (d0)"


def unary(name, op, source, target, shape=(4, 3), index=ID2):
    loops = " ".join(f"p{n}" for n in shape)
    identity = index if index in (ID1, ID2) else ID2
    return generic(
        name, loops, [read(source, shape, index)], [write(target, shape, identity)],
        lambda body, x, _: body.emit(op, x),
    )  # fmt: skip


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def why(producer, consumer, operand=0, preserved=()):
    found = refusal(
        Pair(producer=producer, consumer=consumer, operand=operand, preserved=frozenset(preserved))
    )
    return (found.rule, found.text) if found else None


def row_sums(name="sum", source="x", target="s"):
    return generic(
        name, "p4 r3", [read(source, (4, 3), ID2)],
        [write(target, (4,), ROW, fill="0x0p+0")], binary("add"),
    )  # fmt: skip


def test_every_rule_has_a_message_and_is_tested_here():
    assert all(MESSAGES.values())
    assert set(MESSAGES) == {rule.__name__ for rule in FUSION_RULES}
    tested = Path(__file__).read_text(encoding="utf-8")
    missing = [name for name in MESSAGES if f'"{name}"' not in tested]
    assert missing == []


def test_a_producer_that_gathers_is_not_fused():
    consumer = unary("neg", "neg", "s", "y", shape=(4,), index=ID1)
    assert why(row_sums(), consumer) == (
        "all_parallel_producer",
        "sum gathers along loop d1 (reduction); a fused producer has parallel loops only",
    )


def test_operators_that_share_memory_are_not_fused():
    producer, consumer = unary("neg", "neg", "x", "s"), unary("abs", "abs", "s", "x")
    assert why(producer, consumer) == (
        "value_semantics",
        "x is written by abs and used by neg: they share memory, not a value",
    )


def test_what_a_result_starts_from_is_not_fused():
    consumer = generic(
        "sum", "p4 r3", [read("x", (4, 3), ID2)], [write("y", (4,), ROW, init="s")], binary("add")
    )
    producer = unary("neg", "neg", "v", "s", shape=(4,), index=ID1)
    assert why(producer, consumer, operand=1) == (
        "operand_is_input",
        "s is what a result of sum starts from; only inputs are fused",
    )


def test_an_operand_of_another_shape_or_maker_is_not_fused():
    producer = unary("neg", "neg", "x", "s")
    for source, shape in (("other", (4, 3)), ("s", (3, 4))):
        consumer = unary("abs", "abs", source, "y", shape=shape)
        rule, text = some(why(producer, consumer))
        assert rule == "operand_is_produced"
        assert text == f"neg does not make {source} as abs reads it: float32{list(shape)}"


def test_a_producer_with_more_loops_than_its_result_has_indices_is_not_fused():
    producer = generic(
        "spread", "p4 p1", [read("x", (4,), ROW)], [write("s", (4,), ROW)], lambda _, x, __: x
    )
    consumer = unary("neg", "neg", "s", "y", shape=(4,), index=ID1)
    assert why(producer, consumer) == (
        "index_per_producer_loop",
        "neg reads s with 1 indices, spread has 2 loops",
    )


def test_a_result_map_without_inverse_is_not_fused():
    producer = generic(
        "row", "p4 p1", [read("x", (4,), ROW)], [write("s", (4, 1), "(d0, d1) -> (d0, 0)")],
        lambda _, x, __: x,
    )  # fmt: skip
    consumer = unary("neg", "neg", "s", "y", shape=(4, 1))
    assert why(producer, consumer) == (
        "result_map_is_permutation",
        "row writes s by (d0, d1) -> (d0, 0), which is no permutation and has no inverse",
    )


def test_bounds_of_a_reduction_are_kept():
    spread = generic(
        "spread", "p4 p3", [read("c", (), "(d0, d1) -> ()")], [write("x", (4, 3), ID2)],
        lambda _, c, __: c,
    )  # fmt: skip
    assert some(why(spread, row_sums()))[0] == "loops_keep_bounds"


def test_a_value_needed_outside_is_not_preserved_by_an_operator_that_computes_part_of_it():
    producer = unary("neg", "neg", "x", "s")
    consumer = generic(
        "first", "p3", [read("s", (4, 3), "(d0) -> (0, d0)")], [write("y", (3,), ID1)],
        lambda _, s, __: s,
    )  # fmt: skip
    assert why(producer, consumer, preserved={"s"}) == (
        "preserved_results_are_whole",
        "s is needed outside too, but first computes it at (d0) -> (0, d0): not all of it, once",
    )
    fused = fuse_elementwise(producer, consumer, 0)
    assert maps_of(fused) == ["(d0) -> (0, d0)"], "not preserved, only the part is computed"


def test_a_value_that_is_also_read_in_another_order_is_not_preserved():
    producer = unary("neg", "neg", "x", "s", shape=(3, 3))
    consumer = generic(
        "symmetric", "p3 p3",
        [read("s", (3, 3), ID2), read("s", (3, 3), "(d0, d1) -> (d1, d0)")],
        [write("y", (3, 3), ID2)], binary("add"),
    )  # fmt: skip
    assert why(producer, consumer, preserved={"s"}) == (
        "preserved_results_are_not_read",
        "s must still be written by neg, and symmetric also reads it in another order",
    )
    fused = fuse_greedily([producer, consumer], {"y"})
    members = generic_members(fused)
    assert [ops_of(m) for m in members] == [["neg", "neg", "add"]]
    values = {"x": normal(3, 3)}
    assert same_bits(run_all(members, values)["y"], run_all([producer, consumer], values)["y"])


def test_a_producer_that_reads_its_own_output_keeps_it():
    producer = generic(
        "accumulate", "p4 p3", [read("x", (4, 3), ID2)],
        [write("s", (4, 3), ID2, init="start")], binary("add"),
    )  # fmt: skip
    consumer = unary("neg", "neg", "s", "y")
    assert preserved_results(Pair(producer=producer, consumer=consumer, operand=0)) == (0,)
    fused = fuse_elementwise(producer, consumer, 0)
    assert [(r.value, r.init) for r in fused.results] == [("s", "start"), ("y", None)]
    values = {"x": normal(4, 3), "start": normal(4, 3) + 1}
    expected = run_all([producer, consumer], values)
    got = run_kernel(Kernel(op=fused), values)
    assert all(same_bits(got[n], expected[n]) for n in "sy")


def test_both_results_of_a_producer_are_taken_at_once():
    producer = generic(
        "both", "p4 p3", [read("x", (4, 3), ID2)],
        [write("s", (4, 3), ID2), write("t", (4, 3), "(d0, d1) -> (d0, d1)")],
        lambda body, x, *_: (body.emit("neg", x), body.emit("abs", x)),
    )  # fmt: skip
    consumer = generic(
        "mul", "p4 p3", [read("t", (4, 3), ID2), read("s", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    fused = fuse_elementwise(producer, consumer, 0)
    assert [x.value for x in fused.inputs] == ["x"]
    assert ops_of(fused) == ["neg", "abs", "mul"]


def test_a_preserved_value_another_operand_depends_on_would_make_a_circle():
    members = [
        unary("neg", "neg", "x", "s"),
        Opaque(name="softmax", reads=("s",), writes=("t",)),
        generic(
            "mul", "p4 p3", [read("s", (4, 3), ID2), read("t", (4, 3), ID2)],
            [write("y", (4, 3), ID2)], binary("mul"),
        ),
    ]  # fmt: skip
    fused = fuse_greedily(members, {"y"}, control=always)
    assert list(fused.members) == members
    ((producer, consumer, no),) = fused.refusals
    assert (producer, consumer, no.rule) == ("neg", "mul", "waits_for_itself")
    assert no.text == "mul needs softmax, which needs neg: fused, they would wait forever"


def test_a_fused_operator_stands_after_all_it_reads_and_before_all_that_read_it():
    members = [
        unary("neg", "neg", "x", "s"),
        Opaque(name="early", reads=("s",), writes=("e",)),
        Opaque(name="late", reads=("x",), writes=("t",)),
        generic(
            "mul", "p4 p3", [read("s", (4, 3), ID2), read("t", (4, 3), ID2)],
            [write("y", (4, 3), ID2)], binary("mul"),
        ),
    ]  # fmt: skip
    fused = fuse_greedily(members, {"y", "e"}, control=always)
    assert [m.name for m in fused.members] == ["late", "neg+mul", "early"]
    assert list(fused.origins) == [(2,), (0, 3), (1,)]


def test_operators_that_lead_nowhere_go():
    wanted = unary("c", "abs", "x", "y")
    members = [unary("a", "neg", "x", "s"), unary("b", "neg", "s", "t"), wanted]
    assert [m.name for m in fuse_greedily(members, {"y"}).members] == ["c"]


# Rewrites


def test_a_splat_is_one_value_in_every_bit():
    assert splat(np.array([0.5, 0.5], np.float32)) == "0x1.0000000000000p-1"
    assert splat(np.array([0.0, -0.0], np.float32)) is None
    assert splat(np.zeros((0, 3), np.float32)) is None
    assert splat(np.array(7, np.int8)) == "7"
    assert splat(np.full((2, 2), np.nan, np.float32)) == "nan"


def test_a_splat_becomes_a_scalar_of_the_payload():
    op = generic(
        "mul", "p4 p3", [read("x", (4, 3), ID2), read("c", (3,), "(d0, d1) -> (d1)")],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    folded = fold_splats(op, {"c": np.full(3, 0.1, np.float32)})
    assert [x.value for x in folded.inputs] == ["x"]
    assert fold_splats(op, {"c": np.array([1, 1, 2], np.float32)}) is op
    values = {"x": normal(4, 3), "c": np.full(3, 0.1, np.float32)}
    assert same_bits(
        run_kernel(Kernel(op=folded), values)["y"], run_kernel(Kernel(op=op), values)["y"]
    )


def fill(value="c", text=0.25, shape=(4, 3)):
    loops = " ".join(f"p{n}" for n in shape)
    index = ID2 if len(shape) == 2 else ID1
    return generic(
        "fill", loops, [], [write(value, shape, index)],
        lambda body, _: body.const(text, "float32"),
    )  # fmt: skip


def test_a_fill_moves_into_the_payload_of_its_reader():
    op = generic(
        "mul", "p4 p3", [read("x", (4, 3), ID2), read("c", (4, 3), ID2)],
        [write("y", (4, 3), ID2)], binary("mul"),
    )  # fmt: skip
    fused = fuse_greedily([fill(), op], {"y"})
    (member,) = generic_members(fused)
    assert [x.value for x in member.inputs] == ["x"]
    values = {"x": normal(4, 3)}
    expected = run_all([fill(), op], values)["y"]
    assert same_bits(run_all([member], values)["y"], expected)


def test_a_reduction_starts_from_the_literal_of_a_fill():
    start = fill("start", 3, shape=(4,))
    total = generic(
        "sum", "p4 r3", [read("x", (4, 3), ID2)], [write("y", (4,), ROW, init="start")],
        binary("add"),
    )  # fmt: skip
    (member,) = generic_members(fuse_greedily([start, total], {"y"}))
    assert (member.results[0].init, member.results[0].fill) == (None, "0x1.8000000000000p+1")
    values = {"x": normal(4, 3)}
    expected = run_all([start, total], values)["y"]
    assert same_bits(run_all([member], values)["y"], expected)


def test_a_fill_that_bounds_a_reductions_loop_stays():
    assert fold_fill(row_sums(source="c"), fill()) == row_sums(source="c")


def test_an_init_nobody_reads_is_dropped():
    op = generic(
        "neg", "p4 p3", [read("x", (4, 3), ID2)], [write("y", (4, 3), ID2, init="old")],
        lambda body, x, _: body.emit("neg", x),
    )  # fmt: skip
    assert drop_unused_inits(op).results[0].init is None
    assert drop_unused_inits(row_sums()) == row_sums()


def test_an_input_nobody_reads_is_dropped_unless_it_bounds_a_reductions_loop():
    def payload(body, x, _, out):
        return body.emit("add", out, x)

    inputs = [read("x", (4,), ROW), read("shape", (3,), "(d0, d1) -> (d1)")]
    total = generic("sum", "p4 r3", inputs, [write("y", (4,), ROW, fill="0x0p+0")], payload)
    assert drop_unused_inputs(total) == total
    spread = generic("x", "p4 p3", inputs, [write("y", (4, 3), ID2)], lambda _, x, __, ___: x)
    assert [x.value for x in drop_unused_inputs(spread).inputs] == ["x"]


def test_equal_inputs_become_one_and_equal_instructions_too():
    op = generic(
        "square", "p4 p3", [read("x", (4, 3), ID2), read("x", (4, 3), ID2)],
        [write("y", (4, 3), ID2)],
        lambda body, a, b, _: body.emit("mul", body.emit("neg", a), body.emit("neg", b)),
    )  # fmt: skip
    folded = fold_equal_inputs(op)
    assert len(folded.inputs) == 1
    assert ops_of(folded) == ["neg", "mul"]


def test_a_result_nobody_needs_is_dropped_unless_another_is_made_from_it():
    def both(body, x, s, t):
        return body.emit("add", s, x), body.emit("add", body.emit("neg", t), s)

    results = [write(n, (4,), ROW, fill="0x0p+0") for n in "st"]
    op = generic("both", "p4 r3", [read("x", (4, 3), ID2)], results, both)
    assert drop_results(op, {"t"}) == op, "t is made from what s held"
    assert [r.value for r in drop_results(op, {"s"}).results] == ["s"]


# Control functions


def candidate(readers=1):
    producer, consumer = unary("neg", "neg", "x", "s"), unary("abs", "abs", "s", "y")
    fused = fuse_elementwise(producer, consumer, 0)
    return Candidate(producer=producer, consumer=consumer, readers=readers, fused=fused)


def test_control_functions_say_no_in_a_sentence():
    assert one_use(candidate()) is None
    assert one_use(candidate(3)) == "neg has 3 readers"
    assert always(candidate(3)) is None
    assert at_most_ops(2)(candidate()) is None
    assert at_most_ops(1)(candidate()) == "the payload would have 2 instructions, the limit is 1"
    assert at_most_live_values(2)(candidate()) is None
    assert at_most_live_values(1)(candidate()) == (
        "2 values would be alive at once, the limit is 1"
    )


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (lambda _, x, *__: x, 1),
        (lambda b, x, y, _: b.emit("add", x, y), 3),
        (lambda b, x, *_: b.emit("neg", b.emit("neg", b.emit("neg", x))), 2),
        (lambda b, x, y, _: b.emit("add", b.emit("neg", x), b.emit("neg", y)), 3),
        (lambda b, x, *_: b.emit("add", b.emit("neg", x), b.emit("abs", x)), 3),
        (lambda b, x, *_: b.emit("add", x, b.const(1, "float32")), 2),
    ],
)
def test_live_values_counts_operands_from_their_first_use_to_their_last(payload, count):
    op = generic(
        "x", "p4 p3", [read("x", (4, 3), ID2), read("y", (4, 3), ID2)],
        [write("z", (4, 3), ID2)], payload,
    )  # fmt: skip
    assert live_values(op) == count
