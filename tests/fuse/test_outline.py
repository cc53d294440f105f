"""Groups as ONNX functions: the same bits as before, and every group where it belongs."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import zoo
from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import PartitionError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.fuse.model_cuts import COPIED, only_views
from opu_fuse.fuse.outline import (
    DOMAIN,
    GROUP_KEY,
    HOST_KEY,
    LEFT_KEY,
    OPERATORS_KEY,
    REASONS_KEY,
    SOURCE_KEY,
    group_name,
    outline,
)
from opu_fuse.fuse.strategies.registry import STRATEGIES, partition
from tests.dfg import canonical
from tests.fuse.random_graphs import graphs
from tests.fuse.reading import machine
from tests.some import some

LIGHT = onnx.__file__.replace("__init__.py", "backend/test/data/light/{}.onnx")
LEGAL = [name for name in STRATEGIES if name != "greedy"]
ROUNDING = {"QuantizeLinear", "DequantizeLinear"}
CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"


def run(model, inputs, *, optimised, names=None):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    levels = ort.GraphOptimizationLevel
    level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    session = ort.InferenceSession(model.SerializeToString(), options)
    return session.run(names, inputs)


def typed(model):
    """With the types of outputs written out, as the checker wants them."""
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def exposed(model, names):
    """The same model with more outputs."""
    more = onnx.ModelProto()
    more.CopyFrom(model)
    known = {o.name for o in more.graph.output}
    more.graph.output.extend(
        helper.make_empty_tensor_value_info(n) for n in names if n not in known
    )
    return more


def bits(arrays):
    return [(a.dtype, a.shape, a.tobytes()) for a in arrays]


def assert_same_bits(fused, original, inputs, apart=0.0):
    """Outputs as users run the models, and without optimisations all values between groups.

    apart: how far optimised outputs may be, of the largest value: merged operators round elsewhere.
    """
    optimised = (run(model, inputs, optimised=True) for model in (fused, original))
    for here, there in zip(*optimised, strict=True):
        np.testing.assert_allclose(here, there, rtol=0, atol=apart * np.abs(there).max(initial=0))
    names = [o.name for o in original.graph.output]
    names += [o for n in fused.graph.node if n.domain == DOMAIN for o in n.output]
    names = list(dict.fromkeys(names))
    here = run(exposed(fused, names), inputs, optimised=False, names=names)
    there = run(exposed(original, names), inputs, optimised=False, names=names)
    for name, a, b in zip(names, here, there, strict=True):
        assert bits([a]) == bits([b]), name


def noise(model, rng):
    shapes = {i.name: i.type.tensor_type.shape.dim for i in model.graph.input}
    return {
        name: rng.standard_normal([d.dim_value for d in dims]).astype(np.float32)
        for name, dims in shapes.items()
    }


def functions(model):
    return {f.name: f for f in model.functions}


def facts(proto):
    return {p.key: p.value for p in proto.metadata_props}


def from_text(body, *, unrounded=()):
    """(DFG, partition on opu-tiny, QDQ model) of nodes on a feature map x (1, 4, 6, 6)."""
    text = (
        "g (float[1,4,6,6] x, float[4,4,3,3] w, float[4,4,3,3] w2, float[4] b, float[4] b2)"
        f" => {body}"
    )
    q = canonical.quantised(text, unrounded=unrounded)
    dfg = build_dfg(q.model)
    return dfg, partition(dfg, machine("opu-tiny")), q.qdq


def outlined(body, **options):
    dfg, found, model = from_text(body, **options)
    return outline(dfg, found, model)


@pytest.mark.parametrize("strategy", LEGAL)
@pytest.mark.parametrize("name", ["tiny_residual", "tiny_odd", "tiny_tiles"])
def test_the_fused_model_is_valid_and_computes_the_same_bits(name, strategy, rng):
    check_network(zoo.build(name), "opu-tiny", strategy, rng)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", "shufflenet_v2", "densenet_small", "light_squeezenet"]
)
def test_whole_networks_compute_the_same_bits(name, rng):
    light = name.startswith("light_")
    model = LIGHT.format(name) if light else zoo.build(name, image=64)
    check_network(model, "opu-1024", "matched", rng)


def check_network(source, hw, strategy, rng):
    prepared = prepare(source)
    dfg = build_dfg(prepared.canonical)
    found = partition(dfg, machine(hw), strategy)
    fused = outline(dfg, found, some(prepared.qdq))
    onnx.checker.check_model(fused, full_check=True)
    assert len(fused.functions) == sum(not only_views(dfg, g) for g in found.groups)
    assert LEFT_KEY not in facts(fused)
    assert_same_bits(fused, prepared.qdq, noise(prepared.qdq, rng))


def test_the_float_model_is_outlined_too(rng):
    prepared = prepare(zoo.build("tiny_residual"), quantised=False)
    model = ir.to_proto(prepared.canonical)
    dfg = build_dfg(prepared.canonical)
    fused = outline(dfg, partition(dfg, machine("opu-tiny")), model)
    onnx.checker.check_model(fused, full_check=True)
    assert [n.op_type for n in functions(fused)["stem__stem_relu"].node] == ["Conv", "Relu"]
    assert_same_bits(fused, model, noise(model, rng))


def test_a_group_says_what_it_is_made_of_and_why_it_ends():
    prepared = prepare(zoo.build("tiny_residual"))
    dfg = build_dfg(prepared.canonical)
    found = partition(dfg, machine("opu-tiny"))
    fused = outline(dfg, found, some(prepared.qdq))
    stem = facts(functions(fused)["stem__stem_relu"])
    assert stem[GROUP_KEY] == "0"
    assert stem[OPERATORS_KEY].splitlines() == [
        "stem: conv on ipa",
        "stem/bias: add on add",
        "stem.relu: relu on compare",
    ]
    assert stem[SOURCE_KEY] == "stem,stem.bn,stem.relu"
    assert "to block1.conv1: " in stem[REASONS_KEY]
    assert "read by block1" in stem[REASONS_KEY]
    calls = [n.name for n in fused.graph.node if n.domain == DOMAIN]
    assert calls == [group_name(dfg, g) for g in found.groups]
    assert [facts(f)[GROUP_KEY] for f in fused.functions] == list("012345")


def test_parameters_are_values_first_then_constants_each_once():
    fused = outlined(f"(float[] y) {{ c = {CONV}(x, w, b) y = Add(c, x) }}")
    (function,) = fused.functions
    assert function.input[0] == "x/q"
    assert sorted(function.input) == sorted(set(function.input))
    constants = {t.name for t in fused.graph.initializer}
    assert [n in constants for n in function.input] == [False] + [True] * (len(function.input) - 1)
    assert {"w/q", "b/q"} <= set(function.input), "weights and the owned bias are parameters"


def test_a_function_holds_no_data():
    fused = outlined(f"(float[] y) {{ c = {CONV}(x, w, b) r = Relu(c) y = {CONV}(r, w2, b2) }}")
    nodes = [n for f in fused.functions for n in f.node]
    assert "Constant" not in {n.op_type for n in nodes}
    assert not [a for n in nodes for a in n.attribute if a.HasField("t")]


def test_a_value_read_by_two_groups_leaves_once_and_only_its_dequantising_is_copied():
    fused = outlined(f"(float[] y) {{ c = {CONV}(x, w, b) d = {CONV}(c, w2) y = Add(c, d) }}")
    first, second = fused.functions
    assert list(first.output) == ["c/q"]
    assert list(second.input).count("c/q") == 1
    types = [n.op_type for f in fused.functions for n in f.node]
    assert (types.count("Conv"), types.count("Add")) == (2, 1)


def test_host_operators_stay_with_the_reason(rng):
    dfg, found, model = from_text(
        f"(float[] y) {{ c = {CONV}(x, w, b) [soft] s = Softmax<axis=1>(c) y = {CONV}(s, w2) }}"
    )
    fused = outline(dfg, found, model)
    (soft,) = [n for n in fused.graph.node if n.op_type == "Softmax"]
    assert "no module of this machine runs it" in facts(soft)[HOST_KEY]
    kinds = [n.op_type for n in fused.graph.node]
    assert kinds.index("Softmax") < [i for i, n in enumerate(fused.graph.node) if n.domain][-1]
    assert_same_bits(fused, model, noise(model, rng))


def test_an_output_of_the_model_inside_is_a_result_of_the_function(rng):
    dfg, found, model = from_text(
        f"(float[] c, float[] y) {{ c = {CONV}(x, w, b) r = Relu(c) y = {CONV}(r, w2) }}"
    )
    fused = outline(dfg, found, model)
    results = [o for f in fused.functions for o in f.output]
    assert {"c", "c/q", "y"} <= set(results)
    assert_same_bits(fused, model, noise(model, rng))


def test_an_illegal_partition_is_refused_by_its_first_violation():
    dfg, _, model = from_text(f"(float[] y) {{ c = {CONV}(x, w, b) r = Relu(c) y = Add(c, r) }}")
    greedy = partition(dfg, machine("opu-classic"), "greedy")
    assert not greedy.legal
    with pytest.raises(PartitionError, match=r"strategy greedy: .*use strategy='matched'"):
        outline(dfg, greedy, model)


def test_equal_names_and_names_that_are_no_identifiers_become_functions_of_their_own(rng):
    dfg, _, model = from_text(
        f"(float[] y) {{ [n1] c = {CONV}(x, w, b) [s] s = Sigmoid(c) [n2] y = {CONV}(s, w2) }}"
    )
    names = {"n1": "0/a.b", "n2": "0/a_b"}
    for node in model.graph.node:
        node.name = names.get(node.name, node.name)
    dfg = replace(dfg, nodes=tuple(replace(n, name=names.get(n.name, n.name)) for n in dfg.nodes))
    fused = outline(dfg, partition(dfg, machine("opu-tiny")), model)
    assert [f.name for f in fused.functions] == ["_0_a_b", "_0_a_b_1"]
    assert [n.name for n in fused.graph.node if n.domain] == ["0/a.b", "0/a_b"]
    onnx.checker.check_model(typed(fused))
    assert_same_bits(fused, model, noise(model, rng))


def foreign(nodes, outputs, shape=(1, 8, 6, 6), data=None):
    """A quantised model as another tool might write it, scale 2**-4 everywhere."""
    if data is None:
        weight = np.random.default_rng(0).integers(-50, 50, (8, 8, 3, 3)).astype(np.int8)
        data = {"w_q": weight, "w_s": np.float32(2**-8)}
        nodes = [helper.make_node("DequantizeLinear", ["w_q", "w_s"], ["w"], name="wd"), *nodes]
    data = {"s": np.float32(2**-4), "z": np.int8(0)} | data
    graph = helper.make_graph(
        nodes,
        "foreign",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, shape) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in data.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def rounded(value, times=1):
    """QuantizeLinear and DequantizeLinear behind a value, several pairs on request."""
    names = [f"{value}{i or ''}" for i in range(times)]
    return [
        node
        for n in names
        for node in (
            helper.make_node("QuantizeLinear", [value, "s", "z"], [f"{n}_q"], name=f"{n}_q"),
            helper.make_node("DequantizeLinear", [f"{n}_q", "s", "z"], [f"{n}_d"], name=f"{n}_d"),
        )
    ]


def conv(source, result):
    return helper.make_node("Conv", [source, "w"], [result], name=result, pads=[1, 1, 1, 1])


def outline_foreign(model):
    prepared = prepare(model)
    dfg = build_dfg(prepared.canonical)
    found = partition(dfg, machine("opu-tiny"))
    return outline(dfg, found, some(prepared.qdq)), prepared.qdq, found


def test_a_value_rounded_once_for_each_reader_is_still_one_border(rng):
    nodes = [
        *rounded("x"),
        conv("x_d", "c"),
        *rounded("c", times=2),
        conv("c_d", "d"),
        *rounded("d"),
        helper.make_node("Add", ["c1_d", "d_d"], ["a"], name="a"),
        *rounded("a"),
    ]
    fused, original, found = outline_foreign(foreign(nodes, ["a_d"]))
    assert LEFT_KEY not in facts(fused)
    assert len(fused.functions) == len(found.groups) == 2
    assert list(fused.functions[0].output) == ["c1_q", "c_q"]
    assert_same_bits(fused, original, noise(original, rng))


def test_a_border_that_only_our_form_has_is_found_at_the_view_beside_it(rng):
    """A 1-D convolution is a 2-D one between two views for us; the model has no such values."""
    data = {"w_q": rng.integers(-50, 50, (8, 8, 3)).astype(np.int8), "w_s": np.float32(2**-8)}
    nodes = [
        *rounded("x"),
        helper.make_node("DequantizeLinear", ["w_q", "w_s"], ["w"], name="wd"),
        helper.make_node("Conv", ["x_d", "w"], ["c"], name="c", pads=[1, 1]),
        *rounded("c"),
        helper.make_node("Relu", ["c_d"], ["r"], name="r"),
        *rounded("r"),
        helper.make_node("Conv", ["r_d", "w"], ["d"], name="d", pads=[1, 1]),
        *rounded("d"),
    ]
    fused, original, found = outline_foreign(foreign(nodes, ["d_d"], (1, 8, 16), data))
    assert LEFT_KEY not in facts(fused)
    assert len(fused.functions) == len(found.groups) == 2
    left = [n.op_type for n in functions(fused)["c_conv__r"].node if n.op_type not in ROUNDING]
    assert left == ["Conv", "Relu"]
    assert_same_bits(fused, original, noise(original, rng))


def test_an_operator_that_we_see_as_several_stays_whole(rng):
    """A Sum of three is two Adds for us, with a value between that the model does not have."""
    nodes = [
        *rounded("x"),
        conv("x_d", "c"),
        *rounded("c"),
        conv("c_d", "d"),
        *rounded("d"),
        helper.make_node("Sum", ["x_d", "c_d", "d_d"], ["a"], name="total"),
        *rounded("a"),
        conv("a_d", "e"),
        *rounded("e"),
    ]
    fused, original, _ = outline_foreign(foreign(nodes, ["e_d"]))
    onnx.checker.check_model(fused, full_check=True)
    assert [n.op_type for n in fused.graph.node].count("Sum") == 1
    assert list(functions(fused)) == ["c", "d", "e"]
    assert_same_bits(fused, original, noise(original, rng))


def test_an_operator_of_another_group_is_never_inside(rng):
    """A wrong map from operators to groups is noticed, and costs functions, not results."""
    dfg, found, model = from_text(f"(float[] y) {{ c = {CONV}(x, w, b) y = {CONV}(c, w2) }}")
    for node in model.graph.node:  # the two convolutions swap names
        swap = {"conv_0": "conv_1", "conv_1": "conv_0"}
        node.name = swap.get(node.name, node.name)
    fused = outline(dfg, found, model)
    assert len(fused.functions) == 0
    lines = facts(fused)[LEFT_KEY].splitlines()
    assert lines == [
        "conv_0: the model computes conv_1 inside it",
        "conv_1: the model computes conv_0 inside it",
    ]
    assert_same_bits(fused, model, noise(model, rng))


def test_the_argument_is_not_changed_and_the_same_input_gives_the_same_bytes():
    dfg, found, model = from_text(f"(float[] y) {{ c = {CONV}(x, w, b) y = Add(c, x) }}")
    before = model.SerializeToString(deterministic=True)
    first, second = (outline(dfg, found, model) for _ in range(2))
    assert model.SerializeToString(deterministic=True) == before
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


@settings(max_examples=25)
@given(
    graphs(most=8),
    st.sampled_from(["opu-tiny", "opu-classic"]),
    st.sampled_from(LEGAL),
    st.booleans(),
)
def test_any_graph_any_strategy_the_same_bits_and_every_operator_once(
    text, hw, strategy, zero_points
):
    q = canonical.quantised(text, zero_points=zero_points)
    dfg = build_dfg(q.model)
    found = partition(dfg, machine(hw), strategy)
    fused = outline(dfg, found, q.qdq)
    onnx.checker.check_model(typed(fused))
    nodes = [*fused.graph.node, *(n for f in fused.functions for n in f.node)]
    placed = [n.output[0] for n in nodes if n.domain != DOMAIN and n.op_type not in COPIED]
    assert sorted(placed) == sorted(set(placed))
    calls = [
        n for n in dfg.calls if some(n.ir_node).op_type not in COPIED and "/acc" not in n.value
    ]
    inside = {node.outputs[0].name for n in calls for node in n.body}  # a table of several
    assert {o for o in placed if not o.endswith("/q")} == {n.value for n in calls} | inside
    assert LEFT_KEY not in facts(fused)
    inputs = canonical.user_inputs(q.qdq, np.random.default_rng(0))
    assert_same_bits(fused, q.qdq, inputs, apart=0.05)
