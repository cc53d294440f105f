"""Ports turn axes, shift uint8 and round: what models write for that at their borders costs no host
segment, and gives ONNX Runtime's bits.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.check import mistakes
from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import UserError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.loss import accuracy
from opu_fuse.pipeline import Compilation, Options, compile_model
from opu_fuse.report.json_trees import inspect_json
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise

HW = load_hw("opu-tiny")
FIRST, LAST = "Transpose <perm = [0, 3, 1, 2]>", "Transpose <perm = [0, 2, 3, 1]>"
X, Y = "float[1,9,7,3] x", "float[1,9,7,5] y"
LAYERS = "[c] a = Conv <pads = [1,1,1,1]> (t, w) [r] r = Relu (a) [e] b = Conv (r, v)"
CASES = {
    "an image with channels last": (
        f"({X}) => ({Y}) {{ [t] t = {FIRST} (x) {LAYERS} [u] y = {LAST} (b) }}"
    ),
    "a list of pixels": (
        f"({X}) => (float[1,63,5] y) {{ [t] t = {FIRST} (x) {LAYERS} [u] u = {LAST} (b) "
        "[l] y = Reshape (u, list) }"
    ),
    "a list of pixels given, and a row of numbers": (
        f"(float[63,3] x) => (float[315] y) {{ [n] n = Reshape (x, image) [t] t = {FIRST} (n) "
        f"{LAYERS} [u] u = {LAST} (b) [l] y = Reshape (u, row) }}"
    ),
    "rows and columns exchanged": (
        f"(float[1,3,7,9] x) => (float[1,5,7,9] y) {{ [t] t = Transpose <perm = [0,1,3,2]> (x) "
        f"{LAYERS} [u] y = Transpose <perm = [0,1,3,2]> (b) }}"
    ),
    "lines": (
        "(float[1,16,3] x) => (float[1,16,4] y) { [t] t = Transpose <perm = [0,2,1]> (x) "
        "[c] a = Conv (t, line) [r] r = Relu (a) [u] y = Transpose <perm = [0,2,1]> (r) }"
    ),
    "one channel, behind which only ones are moved": (
        "(float[1,9,7,1] x) => (float[1,9,7,1] y) { [t] t = Transpose <perm = [0,3,1,2]> (x) "
        "[c] a = Conv <pads = [1,1,1,1]> (t, thin) [u] y = Transpose <perm = [0,2,3,1]> (a) }"
    ),
    "a row of numbers that is an image": (
        "(float[1,63] x) => (float[1,63] y) { [t] t = Reshape (x, pixels) "
        "[c] a = Conv <pads = [1,1,1,1]> (t, thin) [u] y = Reshape (a, pixel_row) }"
    ),
    "channels that are pixels": (
        f"({X}) => (float[1,2,18,14] y) {{ [t] t = {FIRST} (x) [c] a = Conv <pads = [1,1,1,1]> "
        "(t, w) [u] y = DepthToSpace <blocksize = 2> (a) }"
    ),
    "pixels that are channels, and the other way in another order": (
        "(float[1,3,8,6] x) => (float[1,2,8,6] y) { [t] t = SpaceToDepth <blocksize = 2> (x) "
        '[c] a = Conv (t, square) [u] y = DepthToSpace <blocksize = 2, mode = "CRD"> (a) }'
    ),
    "one of two outputs, the other read inside": (
        f"({X}) => ({Y}, float[1,8,9,7] r) {{ [t] t = {FIRST} (x) {LAYERS} [u] y = {LAST} (b) }}"
    ),
    "both forms of one map": (
        f"({X}) => ({Y}, float[1,5,9,7] b) {{ [t] t = {FIRST} (x) {LAYERS} [u] y = {LAST} (b) }}"
    ),
    "half precision": (
        f"(float16[1,9,7,3] x) => (float16[1,9,7,5] y) {{ [k] k = Cast <to = 1> (x) "
        f"[t] t = {FIRST} (k) {LAYERS} [u] u = {LAST} (b) [o] y = Cast <to = 10> (u) }}"
    ),
}
INTEGERS = """({0}[1,9,7,3] x) => ({0}[1,9,7,5] y) {{ {1} t1 = QuantizeLinear (t0, s, z)
    t = DequantizeLinear (t1, s, z) wd = DequantizeLinear (wi, ws, wz)
    a0 = Conv <pads = [1,1,1,1]> (t, wd) a1 = QuantizeLinear (a0, s2, z)
    a = DequantizeLinear (a1, s2, z) r0 = Relu (a)
    r1 = QuantizeLinear (r0, s2, z) r = DequantizeLinear (r1, s2, z) {2} }}"""
BORDERS = {
    "as reals": (
        f"d = DequantizeLinear (x, s, z) t0 = {FIRST} (d)",
        f"u = {LAST} (r) y = QuantizeLinear (u, s2, z)",
    ),
    "as integers": (
        f"d = {FIRST} (x) t0 = DequantizeLinear (d, s, z)",
        f"q = QuantizeLinear (r, s2, z) y = {LAST} (q)",
    ),
}


def model(text: str, **more: np.ndarray) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> g {text}')
    rng = np.random.default_rng(5)
    data: dict[str, np.ndarray] = {
        "w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(size=(5, 8, 1, 1)).astype(np.float32),
        "line": rng.normal(size=(4, 3, 1)).astype(np.float32),
        "thin": rng.normal(size=(1, 1, 3, 3)).astype(np.float32),
        "square": rng.normal(size=(8, 12, 1, 1)).astype(np.float32),
        "pixels": np.array([1, 1, 9, 7]),
        "pixel_row": np.array([1, 63]),
        "list": np.array([1, 63, 5]),
        "image": np.array([1, 9, 7, 3]),
        "row": np.array([315]),
        **more,
    }
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(a, n) for n, a in data.items() if n in read
    )
    return made


def integers(kind: type[np.integer], turned: str) -> onnx.ModelProto:
    rng = np.random.default_rng(6)
    return model(
        INTEGERS.format(np.dtype(kind).name, *BORDERS[turned]),
        wi=rng.integers(-90, 91, (5, 3, 3, 3)).astype(np.int8),
        ws=np.array(2.0**-7, np.float32),
        wz=np.array(0, np.int8),
        s=np.array(2.0**-5, np.float32),
        s2=np.array(2.0**-4, np.float32),
        z=np.array(128 if kind is np.uint8 else 0, kind),
    )


def hosts(made: Compilation) -> list[HostSegment]:
    return [s for s in made.bundle.segments if isinstance(s, HostSegment)]


def agrees(bundle: Bundle) -> None:
    inputs = noise(bundle)
    result = run(bundle, HW, inputs, capture=True)
    checked = check(bundle, inputs, result)
    assert checked.passed
    assert checked.mismatches == 0
    assert checked.elements > 100
    assert checked.outputs == len(bundle.outputs)


@pytest.mark.parametrize("name", CASES)
def test_turning_at_the_border_costs_no_host_segment(name: str, tmp_path: Path):
    made = compile_model(model(CASES[name]), HW)
    assert hosts(made) == []
    agrees(made.bundle)
    program_file.save(made.bundle, tmp_path / "a.opu")
    again = program_file.load(tmp_path / "a.opu")
    assert again.inputs == made.bundle.inputs
    assert again.outputs == made.bundle.outputs
    agrees(again)


@pytest.mark.parametrize("turned", BORDERS)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_fully_quantised_models_begin_and_end_on_the_machine(kind: type[np.integer], turned: str):
    made = compile_model(integers(kind, turned), HW)
    assert hosts(made) == []
    (given,), (left,) = made.bundle.inputs, made.bundle.outputs
    assert (given.dtype, given.shape) == (np.dtype(kind).name, (1, 9, 7, 3))
    assert (left.dtype, left.shape) == (np.dtype(kind).name, (1, 9, 7, 5))
    agrees(made.bundle)


@pytest.mark.parametrize(
    "name", ["an image with channels last", "lines", "channels that are pixels"]
)
def test_images_of_a_batch_are_turned_one_by_one(name: str, rng: np.random.Generator):
    one, two = (compile_model(model(CASES[name]), HW, Options(batch=n)).bundle for n in (1, 2))
    (port,) = two.inputs
    inputs = {"x": rng.normal(size=(2, *port.shape[1:])).astype(np.float32)}
    expected, got = run(one, HW, inputs), run(two, HW, inputs, capture=True)
    np.testing.assert_array_equal(got.outputs["y"], expected.outputs["y"])
    assert check(two, inputs, got).passed


def test_an_input_without_an_axis_of_images_makes_no_batch():
    text = CASES["a list of pixels given, and a row of numbers"]
    with pytest.raises(UserError, match=r"input 'x'.*\[63, 3\]"):
        compile_model(model(text), HW, Options(batch=2))


STAY: dict[str, str] = {
    "two read the input, rounded": (
        f"({X}) => ({Y}, float[1,9,7,3] z) {{ [t] t = {FIRST} (x) {LAYERS} [u] y = {LAST} (b) "
        "[s] z = Relu (x) }"
    ),
    "somebody reads the turned result": (
        f"({X}) => ({Y}, float[1,9,7,5] z) {{ [t] t = {FIRST} (x) {LAYERS} [u] y = {LAST} (b) "
        "[s] z = Softmax (y) }"
    ),
    "the turned input is an output": (
        f"({X}) => (float[1,5,9,7] b, float[1,3,9,7] t) {{ [t] t = {FIRST} (x) {LAYERS} }}"
    ),
    "nothing but a Transpose": f"({X}) => (float[1,3,9,7] y) {{ [t] y = {FIRST} (x) }}",
}


@pytest.mark.parametrize("name", STAY)
def test_what_others_read_is_turned_by_the_host(name: str):
    made = compile_model(model(STAY[name]), HW)
    assert any("Transpose" in kind for s in hosts(made) for _, kind, _ in s.ops)
    inputs = noise(made.bundle)
    assert check(made.bundle, inputs, run(made.bundle, HW, inputs, capture=True)).passed


def test_what_only_moves_belongs_to_one_of_two_ports():
    """The input's port takes both operators; the output's only rounds."""
    made = compile_model(
        model(
            "(float[1,7,2,2] x) => (int8[1,2,1,14] y) "
            f"{{ a = Reshape (x, sizes) b = {LAST} (a) y = QuantizeLinear (b, s, z) }}",
            sizes=np.array((1, 14, 2, 1)),
            s=np.array(2.0**-6, np.float32),
            z=np.array(0, np.int8),
        ),
        HW,
    )
    x = np.arange(-14, 14, dtype=np.float32).reshape(1, 7, 2, 2) / 16
    expected = (x.reshape(1, 14, 2, 1).transpose(0, 2, 3, 1) * 64).astype(np.int8)
    assert np.array_equal(run(made.bundle, HW, {"x": x}).outputs["y"], expected)


def test_a_result_that_is_rounded_otherwise_behind_the_border_keeps_its_rounding():
    end = f"u = {LAST} (r) y = QuantizeLinear (u, coarse, z)"
    text = INTEGERS.format("int8", BORDERS["as reals"][0], end)
    scales = {"s": 2.0**-5, "s2": 2.0**-4, "ws": 2.0**-7, "coarse": 2.0**-2}
    numbers = {n: np.array(v, np.float32) for n, v in scales.items()}
    rng = np.random.default_rng(6)
    weights = rng.integers(-90, 91, (5, 3, 3, 3)).astype(np.int8)
    zero = np.array(0, np.int8)
    made = compile_model(model(text, wi=weights, wz=zero, z=zero, **numbers), HW)
    assert not hosts(made)
    agrees(made.bundle)


@pytest.mark.parametrize("name", CASES)
def test_floats_and_integers_have_the_same_borders(name: str):
    graphs = [
        build_dfg(prepare(model(CASES[name]), quantised=quantised).canonical)
        for quantised in (False, True)
    ]
    turns = [[b and b.turn for b in (*g.entries, *g.exits)] for g in graphs]
    assert turns[0] == turns[1]
    assert [n.op for n in graphs[0].nodes] == [n.op for n in graphs[1].nodes]


def test_accuracy_is_measured_in_the_order_of_the_users_arrays():
    found = accuracy(model(CASES["an image with channels last"]), HW)
    (output,) = found.outputs
    assert output.ratio is not None
    assert output.ratio > 20.0


def test_a_turned_port_is_shown_with_its_operators():
    bundle = compile_model(model(CASES["an image with channels last"]), HW).bundle
    tree = inspect_json(bundle)
    assert tree["inputs"][0]["turn"] == {
        "value": [1, 3, 9, 7],
        "axes": [1, 3, 9, 7],
        "order": [0, 2, 3, 1],
    }
    places = {s["name"]: s["operators"] for s in tree["sources"]}
    assert places["t"] == [{"name": "t", "group": None, "host_segment": None}]


WRONG = {
    "an axis twice": {"order": (0, 2, 2, 1)},
    "an axis less": {"order": (0, 2, 1)},
    "other sizes": {"axes": (1, 3, 9, 8)},
    "a value that is not its tensor": {"value": (1, 3, 7, 9)},
    "a negative size": {"axes": (-1, -3, 9, 7)},
}


@pytest.mark.parametrize("name", WRONG)
def test_turns_that_are_none_are_refused(name: str):
    bundle = compile_model(model(CASES["an image with channels last"]), HW).bundle
    (port,) = bundle.inputs
    assert port.turn is not None
    wrong = replace(port, turn=replace(port.turn, **WRONG[name]))
    assert "port x permutes" in next(mistakes(replace(bundle, inputs=(wrong,)), HW))
