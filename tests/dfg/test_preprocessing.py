"""Preprocessing of images that a model holds itself: ports look the bytes up, with ONNX Runtime's
bits, whatever stands behind.
"""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.check import mistakes
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.interpret import interpret
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.loss import accuracy
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.report.json_trees import inspect_json
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.some import some

HW = load_hw("opu-tiny")
LAYERS = "[c] a = Conv <pads = [1,1,1,1]> (m, w) [r] r = Relu (a) [e] y = Conv (r, v)"
LAST = "uint8[1,9,7,3] x"
FIRST = "uint8[1,3,9,7] x"
TURN = "m = Transpose <perm = [0, 3, 1, 2]>"
MEAN = "c = Cast <to = 1> (x) d = Div (c, all) e = Sub (d, mean) f = Div (e, std)"
CASES = {
    "channels last": (LAST, f"{MEAN} {TURN} (f)"),
    "turned first": (
        LAST,
        (
            "t = Transpose <perm = [0, 3, 1, 2]> (x) c = Cast <to = 1> (t) d = Mul (c, scale) "
            "e = Sub (d, column) m = Div (e, column)"
        ),
    ),
    "channels first": (FIRST, "c = Cast <to = 1> (x) e = Sub (c, all) m = Mul (e, column)"),
    "without batch": ("uint8[9,7,3] x", f"{MEAN} u = Unsqueeze (f, zero) {TURN} (u)"),
    "blue first, a Gather": (
        FIRST,
        "g = Gather <axis = 1> (x, turned) c = Cast <to = 1> (g) m = Mul (c, column)",
    ),
    "blue first, a Slice": (
        LAST,
        (
            "g = Slice (x, minus, low, three, minus) c = Cast <to = 1> (g) e = Sub (c, mean) "
            f"{TURN} (e)"
        ),
    ),
    "blue first, behind the numbers": (
        LAST,
        f"{MEAN} t = Transpose <perm = [0, 3, 1, 2]> (f) m = Gather <axis = 1> (t, turned)",
    ),
    "blue first, parts": (
        FIRST,
        (
            "c = Cast <to = 1> (x) e = Mul (c, column) p, q, s = Split <axis = 1> (e) "
            "m = Concat <axis = 1> (s, q, p)"
        ),
    ),
    "blue first, slices of channels last": (
        LAST,
        (
            "b = Slice (x, two, three, three) g = Slice (x, one, two, three) "
            "r0 = Slice (x, zero, one, three) j = Concat <axis = 3> (b, g, r0) "
            f"c = Cast <to = 1> (j) d = Div (c, mean) {TURN} (d)"
        ),
    ),
    "a normalisation": (
        FIRST,
        "c = Cast <to = 1> (x) m = BatchNormalization (c, vector, vector, vector, vector)",
    ),
    "half precision between": (
        FIRST,
        "c = Cast <to = 10> (x) h = Cast <to = 1> (c) e = Sub (h, all) m = Div (e, all)",
    ),
    "bytes with a sign": (
        "int8[1,3,9,7] x",
        "c = Cast <to = 1> (x) e = Mul (c, scale) m = Sub (e, column)",
    ),
    "nothing but a Cast": (LAST, f"c = Cast <to = 1> (x) {TURN} (c)"),
    "any function": (FIRST, "c = Cast <to = 1> (x) d = Div (c, all) m = Pow (d, gamma)"),
    "from a number": (FIRST, "c = Cast <to = 1> (x) d = Mul (c, scale) m = Sub (column, d)"),
    "pixels that are channels": (
        "uint8[1,3,18,14] x",
        "c = Cast <to = 1> (x) d = Mul (c, scale) m = SpaceToDepth <blocksize = 2> (d)",
    ),
}
LEFT = {
    "a mean image": (FIRST, "c = Cast <to = 1> (x) m = Sub (c, image)"),
    "a channel less": (
        "uint8[1,4,9,7] x",
        "g = Slice (x, zero, three, one) c = Cast <to = 1> (g) m = Mul (c, column)",
    ),
    "read twice": (FIRST, "c = Cast <to = 1> (x) d = Mul (c, scale) m = Sub (d, c)"),
}


def model(x: str, nodes: str, layers: str = LAYERS) -> onnx.ModelProto:
    text = f"g ({x}) => (float[1,5,9,7] y) {{ {nodes} {layers} }}"
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(5)
    column = np.array([0.485, 0.456, 0.406], np.float32)
    inside = 12 if "SpaceToDepth" in nodes else 3
    data: dict[str, np.ndarray | np.generic] = {
        "w": rng.normal(size=(8, inside, 3, 3)).astype(np.float32),
        "v": rng.normal(size=(5, 8, 1, 1)).astype(np.float32),
        "all": np.float32(255),
        "scale": np.float32(1 / 255),
        "gamma": np.float32(2.2),
        "mean": column,
        "std": np.array([0.229, 0.224, 0.225], np.float32),
        "column": column.reshape(3, 1, 1),
        "vector": column,
        "image": rng.normal(size=(3, 9, 7)).astype(np.float32),
        "turned": np.array([2, 1, 0]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "three": np.array([3]),
        "minus": np.array([-1]),
        "low": np.array([-(2**62)]),
    }
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in data.items() if n in read
    )
    return made


def images_of(proto: onnx.ModelProto, count: int = 2) -> dict[str, np.ndarray]:
    (given,) = proto.graph.input
    dtype = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    many = (count, *(shape[1:] if shape[0] == 1 else shape))
    return {"x": rng.integers(limits.min, limits.max + 1, many).astype(dtype)}


def left(compiled) -> list[str]:
    return [compiled.dfg[op.node].op for op in compiled.partition.host]


@pytest.mark.parametrize(("x", "nodes"), CASES.values(), ids=CASES)
def test_no_operator_is_left_and_every_bit_is_onnx_runtimes(x: str, nodes: str):
    proto = model(x, nodes)
    compiled = compile_model(proto, HW)
    assert not left(compiled)
    (port,) = compiled.bundle.inputs
    assert port.table is not None
    assert not list(mistakes(compiled.bundle, HW))
    images = images_of(proto, 1 if port.shape[0] != 1 else 2)
    images = {"x": images["x"][0]} if port.shape[0] != 1 else images
    result = run(compiled.bundle, HW, images, capture=True)
    found = check(compiled.bundle, images, result)
    assert found.passed
    assert found.mismatches == 0
    one = images["x"] if port.shape[0] != 1 else images["x"][:1]
    golden = interpret(compiled.dfg, {"x": one}, HW.numeric)
    (entered,) = compiled.dfg.inputs
    node = compiled.dfg[entered]
    chain = session(proto, (node.value,)).run([node.value], {"x": one})[0]
    np.testing.assert_array_equal(golden[entered], some(node.quant).quantize(np.asarray(chain)))
    (output,) = result.outputs.values()
    real = session(proto).run(None, {"x": one})[0]
    assert np.abs(output[:1] - real).max() < np.abs(np.asarray(real)).max() / 8


@pytest.mark.parametrize(("x", "nodes"), CASES.values(), ids=CASES)
def test_a_model_in_floats_has_the_same_borders(x: str, nodes: str):
    proto = model(x, nodes)
    floating = build_dfg(prepare(proto, quantised=False).canonical)
    rounded = build_dfg(prepare(proto).canonical, quantised=True)
    assert [n.op for n in floating.calls] == [n.op for n in rounded.calls]
    (port,) = floating.entries
    assert port is not None
    assert port.lookup is not None


@pytest.mark.parametrize(("x", "nodes"), LEFT.values(), ids=LEFT)
def test_what_is_no_table_of_bytes_stays_and_is_right(x: str, nodes: str):
    proto = model(x, nodes)
    compiled = compile_model(proto, HW)
    assert left(compiled)
    assert all(port.table is None for port in compiled.bundle.inputs)
    images = images_of(proto)
    assert check(compiled.bundle, images, run(compiled.bundle, HW, images, capture=True)).passed


@pytest.mark.parametrize("case", ["channels last", "blue first, a Gather", "channels first"])
def test_models_that_came_quantised_keep_their_bits(case: str):
    proto = model(*CASES[case])
    images = {"x": images_of(proto, 1)["x"]}
    quantised = quantised_elsewhere(load_model(proto), images)
    compiled = compile_model(quantised, HW)
    (port,) = compiled.bundle.inputs
    assert port.table is not None
    found = check(compiled.bundle, images, run(compiled.bundle, HW, images, capture=True))
    assert found.passed


SCALED = {
    "rounded to another scale": "p = Identity (w)",
    "clamped and rounded": "p = Relu (w)",
    "moved and rounded": "p = Sub (w, half)",
}


@pytest.mark.parametrize("case", SCALED)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_bytes_that_stand_for_other_numbers_are_looked_up_as_those(case: str, kind: str):
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17]> g ({kind}[1,5,6,8] x) => (float[1,8,1,1] y)
        <float s = {{0.03125}}, float t = {{0.1156}}, {kind} z = {{3}}, int8 k = {{-7}},
         float half = {{0.5}}> {{
            v = DequantizeLinear (x, s, z)  w = Transpose <perm = [0, 3, 1, 2]> (v)  {SCALED[case]}
            c = QuantizeLinear (p, t, k)  d = DequantizeLinear (c, t, k)
            e = GlobalAveragePool (d)  f = QuantizeLinear (e, s, k)  y = DequantizeLinear (f, s, k)
        }}"""
    )
    images, compiled = images_of(proto, 1), compile_model(proto, HW)
    found = check(compiled.bundle, images, run(compiled.bundle, HW, images, capture=True))
    assert found.passed, found.first
    assert (compiled.bundle.inputs[0].table is not None) is (kind == "int8")


def test_a_program_file_holds_the_table(tmp_path):
    bundle = compile_model(model(*CASES["channels last"]), HW).bundle
    path = tmp_path / "p.opu"
    program_file.save(bundle, path)
    again = program_file.load(path)
    assert again.inputs == bundle.inputs
    tree = inspect_json(again)
    assert tree["inputs"][0]["table"]["channels"] == (0, 1, 2)
    assert len(tree["inputs"][0]["table"]["values"]) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"channels": (0, 1, 1)}, "looks up channels"),
        ({"channels": (0, 1)}, "looks up channels"),
        ({"lowest": -128}, "looks up bytes from -128"),
        ({"values": ((0,) * 256,) * 2 + ((0,) * 255,)}, "what is no int8 for each byte"),
        ({"values": ((0,) * 256,) * 2 + ((0,) * 255 + (128,),)}, "what is no int8"),
        ({"values": ()}, "looks up channels"),
    ],
)
def test_a_damaged_table_is_refused(change, what):
    bundle = compile_model(model(*CASES["channels last"]), HW).bundle
    (port,) = bundle.inputs
    broken = replace(bundle, inputs=(replace(port, table=replace(some(port.table), **change)),))
    assert what in next(iter(mistakes(broken, HW)))


def test_several_images_run_together_and_accuracy_is_measured():
    proto = model(*CASES["channels last"])
    compiled = compile_model(proto, HW, Options(batch=3))
    images = noise(compiled.bundle)
    assert check(compiled.bundle, images, run(compiled.bundle, HW, images, capture=True)).passed
    assert accuracy(proto, HW, data=images_of(proto), remedies=False).outputs
