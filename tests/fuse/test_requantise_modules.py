"""Which module rounds anew: tables where there are any, else what the pass has not used yet."""

from typing import Any

import numpy as np
import onnx
import pytest

from opu_fuse.fuse.matching.context import context_of
from opu_fuse.fuse.outline import LEFT_KEY
from opu_fuse.fuse.rules.module_rules import module_refusals
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Compilation, Options, Program, compile_model, partition_model
from opu_fuse.sim.compare.runs import check
from tests.frontend.test_insert_requantise import BODIES, RESIZE, X, computed, model

OUTPUT = "float[A,B,C,D] y"
POWERS = "powers of two"


def made(body: str, machine: str, style: str = POWERS, **options: Any) -> Compilation:
    BODIES["drawn"] = (body, OUTPUT)
    try:
        return compile_model(model("drawn", style), load_hw(machine), Options(**options))
    finally:
        del BODIES["drawn"]


def passes(found: Compilation) -> list[list[str]]:
    """What each group runs, and on which modules."""
    dfg = found.dfg
    return [
        [f"{dfg[m.node].title}:{m.module}" for m in g.matches if dfg[m.node].owner is None]
        for g in found.partition.groups
    ]


@pytest.mark.parametrize(
    ("body", "machine", "expected"),
    [
        ("@a(c,d) @b(d,y)", "opu-light", ["conv:ipa", "Requantise:table"]),
        ("@a(c,d) @b(d,y)", "opu-1024", ["conv:ipa", "requantise:compare"]),
        ("@a(c,d) @b(d,y)", "opu-tiny", ["conv:ipa", "requantise:compare"]),
        ("r = Relu(c) @a(r,d) @b(d,y)", "opu-light", ["conv:ipa", "Relu+Requantise:table"]),
        ("r = Relu(c) @a(r,d) @b(d,y)", "opu-1024", ["conv:ipa", "relu:compare"]),
        (
            "@a(c,e) l = LeakyRelu<alpha=0.125>(e) @a(l,d) @b(d,y)",
            "opu-1024",
            ["conv:ipa", "leaky_relu:compare", "avg_pool:pool"],
        ),
        (
            "m = MaxPool<kernel_shape=[2,2]>(c) @a(m,d) @b(d,y)",
            "opu-1024",
            ["conv:ipa", "max_pool:pool", "requantise:compare"],
        ),
        (
            "@a(c,e) s = Sigmoid(e) @b(s,d) @c(d,y)",
            "opu-light",
            ["conv:ipa", "Sigmoid+Requantise:table"],
        ),
        ("@a(c,d) @b(d,e) @c(e,y)", "opu-light", ["conv:ipa", "Requantise+Requantise:table"]),
        (
            f"@a(c,d) m = {RESIZE}(d,,up) @b(m,y)",
            "opu-light",
            ["conv:ipa", "Requantise:table", "upsample:upsample"],
        ),
    ],
)
def test_it_takes_no_pass_of_its_own(body, machine, expected):
    assert passes(made(body, machine)) == [expected]


def test_a_value_that_others_read_too_is_there_in_both_scales():
    body, _ = BODIES["two scales of one value"]
    found = passes(made(body, "opu-light"))
    assert ["Requantise:table"] in found


def test_a_relu_that_rounds_already_is_not_asked_for_another_scale():
    """Between them lie fewer numbers than behind."""
    found = made("@a(c,e) r = Relu(e) @b(r,d) @a(d,y)", "opu-1024")
    assert [n.op for n in found.dfg.calls].count("relu") == 1
    assert len([n for n in found.dfg.calls if n.op in {"clip", "avg_pool"}]) == 1
    hw = load_hw("opu-1024")
    result = Program(bundle=found.bundle, hw=hw).run(X, capture=True)
    assert check(found.bundle, X, result).passed


def test_before_the_array_a_comparator_only_clamps():
    found, hw = made("@a(c,d) @b(d,y)", "opu-1024"), load_hw("opu-1024")
    node = next(n for n in found.dfg.calls if n.is_requantisation)
    (refusal,) = module_refusals(context_of(found.dfg, hw), node, "compare_pre")
    says = "rounds to another scale; module compare_pre, before the array, only clamps"
    assert refusal.text == f"{node.name} {says}"
    assert module_refusals(context_of(found.dfg, hw), node, "compare") == ()


CLAMPED = """<ir_version: 10, opset_import: ["" : 17]> g (float[1,4,6,6] x) => (float[1,4,6,6] y)
<float s = {0.25}, float t = {SCALE}, int8 z = {0}, int8 k = {ZERO}, float low = {0},
 float six = {6}, int8[4,4,1,1] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}> {
    a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)
    c = CLAMP  d = QuantizeLinear(c, t, k)  e = DequantizeLinear(d, t, k)
    v = DequantizeLinear(w, s, z)  f = Conv(e, v)
    g = QuantizeLinear(f, s, z)  y = DequantizeLinear(g, s, z) }"""


@pytest.mark.parametrize("clamp", ["Relu(b)", "Clip(b, low, six)"])
@pytest.mark.parametrize(("scale", "zero", "groups"), [(0.25, 0, 1), (0.125, 0, 2), (0.25, -9, 2)])
def test_a_clamp_that_rounds_anew_is_grouped_by_partition_as_by_compile(clamp, scale, zero, groups):
    text = CLAMPED.replace("SCALE", str(scale)).replace("ZERO", str(zero)).replace("CLAMP", clamp)
    given, hw = onnx.parser.parse_model(text), load_hw("opu-1024")
    made, (dfg, found) = compile_model(given, hw), partition_model(given, hw)
    known = [
        [[(d[m.node].name, m.module) for m in group.matches] for group in p.groups]
        for d, p in ((made.dfg, made.partition), (dfg, found))
    ]
    assert known[0] == known[1]
    assert len(known[0]) == groups


@pytest.mark.parametrize("name", ["concat", "split", "three pairs", "max pool in two scales"])
@pytest.mark.parametrize("strategy", ["matched", "none"])
def test_functions_of_groups_compute_the_same(name, strategy):
    hw = load_hw("opu-light")
    found = compile_model(model(name, "zero points"), hw, Options(strategy=strategy))
    outlined = onnx.load_from_string(found.bundle.fused)
    assert LEFT_KEY not in {p.key for p in outlined.metadata_props}
    assert len(outlined.functions) == len(found.partition.groups)
    assert found.prepared.qdq is not None
    expected, got = computed(found.prepared.qdq), computed(outlined)
    for output, array in expected.items():
        np.testing.assert_array_equal(array, got[output])
