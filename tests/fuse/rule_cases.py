"""Every rule: a smallest graph that breaks it, and the sentence the user gets."""

import dataclasses

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.rules.refusal import Refusal
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.hw_spec import Fill, HwSpec, Limits
from tests.dfg import canonical
from tests.fuse.reading import machine

CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"
NEAREST = 'mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor"'
TINY, CLASSIC = "opu-tiny", "opu-classic"


def limited(hw: HwSpec, module: str, **changes: object) -> HwSpec:
    """The machine with other limits, or other fields, of one module, or with other operators."""
    if module == "operators":
        operators = {**hw.dataflow.operators, **changes}
        return dataclasses.replace(
            hw, dataflow=dataclasses.replace(hw.dataflow, operators=operators)
        )
    modules = dict(hw.dataflow.modules)
    names = {f.name for f in dataclasses.fields(Limits)}
    old = modules[module]
    limits = dataclasses.replace(old.limits, **{k: v for k, v in changes.items() if k in names})
    fields = {k: v for k, v in changes.items() if k not in names}
    modules[module] = dataclasses.replace(old, limits=limits, **fields)
    return dataclasses.replace(hw, dataflow=dataclasses.replace(hw.dataflow, modules=modules))


X = (
    "float[1,4,8,8] x, float[1,4,8,8] z, float[4,4,3,3] w1, float[4] b1, float[4,1,1] k1, "
    "float[1,4,8,8] k2"
)
UNROUNDED = (
    "the result of s is not rounded to int8 in the model (no QuantizeLinear follows), "
    "so it remains in floating point"
)
FORM = (
    "Conv: machines run it only with constant weights (o, i, h, w), a constant bias and explicit "
    "pads"
)
CHANNEL_ADD = (
    "a works on int8 values, module add on accumulators (like a convolution's bias)"
    "; a has k1 of shape (4, 1, 1); module res_add reads it as a full feature map"
)
# rule -> (body, machine, module to change and its limits, host operator or boundary, sentence)
CASES = {
    "known_shape": (
        "[n] n = NonZero(x) [c] a = Cast<to=1>(n) [r] y = Relu(a)",
        TINY,
        None,
        "r",
        "a has a shape that is unknown after n (NonZero)",
    ),
    "known_form": (
        "[m] y = Conv<kernel_shape=[3,3]>(x, z)",
        TINY,
        None,
        "m",
        FORM,
    ),
    "known_operator": (
        "[s] y = Sigmoid(x)",
        TINY,
        None,
        "s",
        "Sigmoid: no module of this machine runs it",
    ),
    "integer_values": (
        "[c] a = " + CONV + "(x, w1) [s] y = Add(a, z)",
        TINY,
        None,
        "s",
        UNROUNDED,
    ),
    "held_numbers": (
        "[p] y = AveragePool<kernel_shape=[1,1],pads=[1,1,1,1]>(x)",
        TINY,
        None,
        "p",
        "a pooling window is wholly in the padding",
    ),
    "feature_maps": (
        "[f] a = Reshape(x, rank3) [r] y = Relu(a)",
        TINY,
        None,
        "r",
        "f has shape (1, 4, 64); the machine holds (1, c, h, w) and (1, n)",
    ),
    "computed_data": (
        "[c] a = " + CONV + "(k2, w1) [s] y = Add(a, z)",
        TINY,
        None,
        "c",
        "c reads nothing but constants; the machine reads maps that are computed",
    ),
    "channel_concat": (
        "[k] y = Concat<axis=2>(x, z)",
        CLASSIC,
        None,
        "k",
        "k joins along axis 2; the machine joins channels (axis 1)",
    ),
    "spatial_pad": (
        "[p] y = Pad(x, channels)",
        TINY,
        None,
        "p",
        "p pads channels; the machine pads rows and columns",
    ),
    "domain": (
        "[a] y = Add(x, k1)",
        TINY,
        None,
        "a",
        CHANNEL_ADD,
    ),
    "operand_access": (
        "[a] y = Add(x, row)",
        CLASSIC,
        None,
        "a",
        "a has row of shape (8,); module add_pre reads it per channel",
    ),
    "constant_operand": (
        "[g] a = GlobalAveragePool(z) [m] y = Mul(x, a)",
        CLASSIC,
        None,
        "m",
        "g is computed at run time; module mul_pre takes a constant",
    ),
    "computed_operand": (
        "[m] y = Mul(x, k1)",
        "opu-1024t",
        ("operators", {"batch_norm": ()}),
        "m",
        "k1 is a constant; module se takes feature maps",
    ),
    "limits": (
        "[p] y = MaxPool<kernel_shape=[3,5],pads=[1,2,1,2]>(x)",
        TINY,
        ("pool", {"window": 3}),
        "p",
        "p has window 3×5; module pool takes at most 3×3",
    ),
    "symmetric_padding": (
        "[c] y = Conv<kernel_shape=[3,3],pads=[0,0,2,2]>(x, w1)",
        TINY,
        ("ipa", {"asymmetric": False}),
        "c",
        "c pads its sides by (0, 0, 2, 2); module ipa pads opposite sides alike",
    ),
    "fill_value": (
        "[p] y = Pad(x, rows, minus)",
        TINY,
        ("pad", {"fill": Fill.ZERO}),
        "p",
        "p fills with -2.0; module pad fills with zero",
    ),
    "repeats": (
        f"[u] y = Resize<{NEAREST}>(x,,times)",
        CLASSIC,
        None,
        "u",
        "u repeats rows and columns 257×2 times; a store repeats each at most 256 times",
    ),
    "view_readers": (
        "[r] a = Relu(x) [f] b = Reshape(a, flat) [g] y = Relu(b)",
        TINY,
        None,
        "f",
        "g cannot read f as (1, 256): its values are stored as (4, 8, 8)",
    ),
    "one_shape": (
        "[r] a = Relu(x) [f] b = Reshape(a, long) [g] y = Clip(b)",
        TINY,
        None,
        ("f", "g"),
        "f has other rows and columns than r, which the group computes: (1, 4, 1, 64)",
    ),
    "no_group": (
        "[f] y = Reshape(x, flat)",
        TINY,
        None,
        "f",
        "f is a view of x, which no group computes",
    ),
    "group_exit": (
        "[r] y = Relu(x)",
        TINY,
        ("compare", {"exit": False}),
        "r",
        "compare is no exit, a group cannot end with it",
    ),
    "single_reader": (
        "[c] a = " + CONV + "(x, w1) [r] b = Relu(a) [l] y = Clip(a)",
        TINY,
        None,
        ("c", "r"),
        "c is also read by l, so its value is needed in memory",
    ),
    "not_an_output": (
        "[c] y = " + CONV + "(x, w1) [r] b = Relu(y)",
        TINY,
        None,
        ("c", "r"),
        "c is an output of the model, so its value is needed in memory",
    ),
    "other_operand": (
        "[r] a = Relu(x) [s] y = Add(a, a)",
        TINY,
        None,
        ("r", "s"),
        "s also reads r, which is computed inside the same group",
    ),
    "one_fill": (
        "[p] a = Pad(x, rows, minus) [c] y = " + CONV + "(a, w1)",
        TINY,
        None,
        ("p", "c"),
        "c pads with zero, p before it with -2.0; one pass has one fill value",
    ),
    "used_once": (
        "[r] a = Relu(x) [l] y = Clip(a)",
        TINY,
        None,
        ("r", "l"),
        "compare already runs an operator of this group",
    ),
    "pipeline_path": (
        "[r] a = Relu(x) [c] y = " + CONV + "(a, w1)",
        TINY,
        None,
        ("r", "c"),
        "conv cannot follow compare in this machine's pipeline",
    ),
    "joined_other": (
        f"[c] a = {CONV}(x, w1) [r] b = Relu(a) [d] e = {CONV}(z, w1) [s] y = Add(b, e)",
        TINY,
        None,
        ("d", "s"),
        "s continues r, and reads d from memory",
    ),
    "host_operator": (
        "[r] a = Relu(x) [s] y = Sigmoid(a)",
        TINY,
        None,
        ("r", "s"),
        "s runs on the host (Sigmoid: no module of this machine runs it)",
    ),
    "round_trip": (
        "[s] a = Sigmoid(x) [r] b = Relu(a) [e] y = Sin(b)",
        TINY,
        None,
        "r",
        "r would only move values: the host computes all that it reads, and reads its result",
    ),
    "host_operand": (
        f"[s] a = Sigmoid(x) [r] y = {CONV}(a, w1)",
        TINY,
        None,
        ("s", "r"),
        "s runs on the host (Sigmoid: no module of this machine runs it)",
    ),
}
CONSTANTS = """<int64[3] rank3 = {1, 4, 64}, int64[2] flat = {1, 256},
    int64[4] long = {1, 4, 1, 64},
    int64[8] channels = {0, 1, 0, 0, 0, 1, 0, 0}, int64[8] rows = {0, 0, 1, 0, 0, 0, 1, 0},
    float[4] times = {1., 1., 257., 2.}, float minus = {-2.0},
    float[8] row = {1., 2., 3., 4., 5., 6., 7., 8.}>"""


def graph(body: str, *, outputs: str = "float[] y", unrounded: tuple[str, ...] = ()):
    text = f"g ({X}) => ({outputs}) {CONSTANTS} {{ {body} }}"
    if unrounded:
        return build_dfg(canonical.quantised(text, unrounded=unrounded).model)
    return build_dfg(canonical.canonical(text))


def case(rule: str) -> tuple[Dfg, HwSpec]:
    """The graph and the machine of a case."""
    body, name, change, *_ = CASES[rule]
    hw = machine(name)
    if change is not None:
        hw = limited(hw, change[0], **change[1])
    unrounded = ("y", "a") if rule == "integer_values" else ()
    two = rule in {"not_an_output", "single_reader"}
    outputs = "float[] y, float[] b" if two else "float[] y"
    return graph(body, outputs=outputs, unrounded=unrounded), hw


def refusal(rule: str, dfg: Dfg, hw: HwSpec) -> Refusal | None:
    """What the case's host operator or boundary says now; None when it is fused."""
    where, result = CASES[rule][3], partition(dfg, hw)
    assert result.legal
    if isinstance(where, str):
        found = [h.why for h in result.host if dfg[h.node].name == where]
    else:
        edges = [(dfg[b.source].name, dfg[b.target].name) for b in result.boundaries]
        found = [b.why for b, e in zip(result.boundaries, edges, strict=True) if e == where]
    return found[0] if found else None
