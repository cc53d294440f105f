"""The DFG: what every later stage may rely on."""

import numpy as np
import onnx_ir as ir
import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Access, Dfg, Kind
from opu_fuse.errors import ModelError
from tests.dfg import canonical
from tests.dfg.chains import chain
from tests.some import some

CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"
RESIDUAL = f"""g (float[1,4,8,8] x, float[4,4,3,3] w1, float[4] b1) => (float[1,4,8,8] y) {{
    [c] a = {CONV}(x, w1, b1)
    [s] y = Add(a, x) }}"""


def dfg(text: str) -> Dfg:
    return build_dfg(canonical.canonical(text))


def named(graph: Dfg, name: str):
    return next(n for n in graph.nodes if n.name == name)


def test_nodes_come_in_post_dfs_order_with_the_bias_right_behind_its_convolution():
    graph = dfg(RESIDUAL)
    assert [n.name for n in graph.nodes] == ["x", "w1", "c", "b1", "c/bias", "s"]
    assert [n.kind for n in graph.nodes] == ["var", "const", "call", "const", "call", "call"]
    assert all(n.index == i for i, n in enumerate(graph.nodes))


def test_nodes_are_frozen():
    for node in dfg(RESIDUAL).nodes:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(node, "op", "other")  # noqa: B010  an assignment would not pass the type check


def test_an_owned_bias_takes_the_value_of_the_convolution_and_knows_its_owner():
    graph = dfg(RESIDUAL)
    conv, bias = named(graph, "c"), named(graph, "c/bias")
    assert (bias.op, bias.owner, bias.operands) == ("add", conv.index, (conv.index, 3))
    assert bias.access == (Access.FULL, Access.PER_CHANNEL)
    assert (conv.value, bias.value) == ("a/acc", "a")
    assert named(graph, "s").operands == (bias.index, 0)


def test_users_are_listed_once_and_ascending():
    graph = dfg("""g (float[1,4] x) => (float[1,4] y, float[1,8] z) {
        [a] y = Add(x, x)
        [c] z = Concat<axis=1>(y, x) }""")
    tuple_node = named(graph, "c/operands")
    assert tuple_node.kind is Kind.TUPLE
    assert graph.users[0] == (named(graph, "a").index, tuple_node.index)
    assert named(graph, "c").operands == (tuple_node.index,)


def test_an_operator_with_several_results_is_a_call_and_one_tuple_get_each():
    graph = dfg("""g (float[1,8,4,4] x) => (float[1,4,4,4] a, float[1,4,4,4] b) {
        [s] a, b = Split<axis=1>(x) }""")
    assert [n.op for n in graph.calls] == ["split"]
    assert graph.calls[0].attrs["sizes"] == (4, 4)
    gets = [n for n in graph.nodes if n.kind is Kind.TUPLE_GET]
    assert [(n.name, n.attrs["index"], n.shape) for n in gets] == [
        ("a", 0, (1, 4, 4, 4)),
        ("b", 1, (1, 4, 4, 4)),
    ]
    assert graph.outputs == tuple(n.index for n in gets)


def test_what_no_output_needs_is_left_out_but_unused_inputs_stay():
    graph = dfg("""g (float[1,4] x, float[1,4] unused) => (float[1,4] y) {
        [live] y = Relu(x)
        [dead] z = Relu(unused) }""")
    assert [n.name for n in graph.nodes] == ["x", "live", "unused"]
    assert [graph[i].name for i in graph.inputs] == ["x", "unused"]


def test_operators_are_reported_under_the_names_of_the_users_model():
    model = canonical.canonical(RESIDUAL)
    model.graph[0].metadata_props["opu_fuse.source"] = "conv1,bn1"
    graph = build_dfg(model)
    assert named(graph, "c").source == ("conv1", "bn1")
    assert named(graph, "c/bias").source == ("conv1", "bn1")
    assert named(graph, "s").source == ("s",)


def test_quantised_and_float_form_have_the_same_structure():
    def structure(graph: Dfg):
        return [(n.kind, n.name, n.op, n.operands, n.access, n.shape, n.owner) for n in graph.nodes]

    quantised = build_dfg(canonical.quantised(RESIDUAL).model)
    assert quantised.quantised
    assert not dfg(RESIDUAL).quantised
    assert structure(quantised) == structure(dfg(RESIDUAL))


def test_annotations_land_on_the_rounded_value_not_on_the_accumulator():
    graph = build_dfg(canonical.quantised(RESIDUAL).model)
    conv, bias = named(graph, "c"), named(graph, "c/bias")
    assert conv.quant is None
    assert bias.quant is not None
    assert bias.tensor == "a/q"
    assert some(named(graph, "w1").const).dtype == np.int8
    assert some(named(graph, "b1").const).dtype == np.int32


def test_a_pool_without_its_own_rounding_hands_on_the_integers_it_reads():
    text = """g (float[1,4,8,8] x) => (float[1,4,4,4] y) {
        [p] a = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)
        [r] y = Relu(a) }"""
    graph = build_dfg(canonical.quantised(text, unrounded=("a",)).model)
    assert named(graph, "p").quant == named(graph, "x").quant
    assert named(graph, "p").tensor == ""


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("[n] y = Conv<auto_pad=\"SAME_UPPER\",kernel_shape=[3,3]>(x, w1)", "host:Conv"),
        ("[n] y = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1],ceil_mode=1>(x)", "host:MaxPool"),
        ("[n] y = Pad<mode=\"reflect\">(x, none)", "host:Pad"),
        ("[n] y = Clip(x, low)", "host:Clip"),
        ("[n] y = Sigmoid(x)", "table"),
        ("[n] y = LeakyRelu<alpha=0.1>(x)", "leaky_relu"),
        ("[n] y = Mul(x, w2)", "multiply"),
        ("[n] y = Clip(x)", "clip"),
        ("[n] y = LeakyRelu<alpha=1.5>(x)", "table"),
        ("[n] y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)", "avg_pool"),
    ],
)  # fmt: skip
def test_only_forms_that_machines_know_get_a_machine_operator(text, op):
    source = f"""g (float[1,4,8,8] x, float[4,4,3,3] w1, float[4,1,1] w2, float low)
        => (float[1,4,8,8] y)
        <int64[8] none = {{0,0,0,0,0,0,0,0}}> {{ {text} }}"""
    assert next(n for n in dfg(source).calls).op == op


@pytest.mark.parametrize(
    ("axes", "scales", "op"),
    [
        ("", "1, 1, 2, 5", "upsample"),
        ("axes=[2,3],", "2, 5", "upsample"),
        ("axes=[-1,2],", "5, 2", "upsample"),
        ("", "1, 1, 2, 5.125", "host:Resize"),
        ("axes=[3],", "5.125", "host:Resize"),
        ("axes=[-1,2],", "2, 5.125", "host:Resize"),
    ],
)
def test_only_whole_steps_are_an_upsample(axes, scales, op):
    """7 columns times 5.125 are 35, too, but the tenth is read from another one."""
    form = f'{axes}mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor"'
    text = f"""g (float[1,4,3,7] x) => (float[1,4,h,w] y)
        <float[{scales.count(",") + 1}] by = {{{scales}}}> {{ y = Resize<{form}>(x, , by) }}"""
    graph = build_dfg(canonical.canonical(text, opset=18))
    assert next(n for n in graph.calls).op == op


def test_a_global_pool_is_a_pool_over_the_whole_map():
    graph = dfg("""g (float[1,4,7,5] x) => (float[1,4,1,1] y) { [p] y = GlobalAveragePool(x) }""")
    pool = named(graph, "p")
    assert (pool.op, pool.attrs["kernel"], pool.attrs["pads"]) == ("avg_pool", (7, 5), (0, 0, 0, 0))


def test_a_host_operator_reads_what_its_subgraphs_capture():
    text = """g (float[1,4] x, bool c) => (float[1,4] y) {
        [r] a = Relu(x)
        [i] y = If<then_branch = t () => (float[1,4] u) { u = Neg(a) },
                   else_branch = e () => (float[1,4] v) { v = Identity(x) }>(c) }"""
    graph = dfg(text)
    read = [graph[i].name for i in named(graph, "i").operands]
    assert sorted(read) == ["c", "r", "x"]


def test_a_result_of_unknown_shape_stays_on_the_host():
    text = """g (float[1,4] x) => (int64[2,n] y) { [z] y = NonZero(x) }"""
    assert dfg(text).calls[0].shape == (2, -1)


def test_a_value_that_nothing_computes_is_named():
    x = ir.val("x", ir.DataType.FLOAT, [1, 4])
    stray = ir.val("stray", ir.DataType.FLOAT, [1, 4])
    add = ir.node("Add", [x, stray], name="add")
    add.outputs[0].name = "y"
    add.outputs[0].shape = ir.Shape([1, 4])
    model = ir.Model(ir.Graph([x], add.outputs, nodes=[add], opset_imports={"": 17}), ir_version=10)
    with pytest.raises(ModelError, match="value 'stray': nothing computes it"):
        build_dfg(model)


def test_a_deep_model_needs_no_recursion():
    graph = build_dfg(chain(5_000, ("Relu",)))
    assert len(graph.calls) == 5_000
    assert graph.calls[-1].name == "n4999"
