"""Bad input gets one clear line that says where, what and what would help; exit code 1; no
partial file.
"""

import re
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.resources import hw_specs_dir


def conv_model(*, opset=17, dtype=np.float32, shape=(1, 3, 8, 8)):
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), dtype), "w")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")],
        "net",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, (1, 4, "h", "w"))],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def refused(called, *words):
    """One line on stderr, exit code 1, no traceback, the words in it."""
    lines = [line for line in called.err.splitlines() if line.startswith("error: ")]
    assert called.code == 1, called
    assert len(lines) == 1, called.err
    assert "Traceback" not in called.err
    for word in words:
        assert word in lines[0], lines[0]


BAD_MODELS = {
    "unsupported_opset": (lambda: conv_model(opset=6), ["opset", "6", "7"]),
    "dynamic_rows": (lambda: conv_model(shape=(1, 3, "height", 8)), ["'x'", "height"]),
}


def test_little_on_the_machine_is_said_in_one_line(opu_fuse, tmp_path):
    model = conv_model()
    model.graph.node[0].op_type = "ConvInteger"
    for value in (*model.graph.input, *model.graph.output):
        kind = TensorProto.UINT8 if value.name == "x" else TensorProto.INT32
        value.type.tensor_type.elem_type = kind
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.int8), "w")
    model.graph.initializer[0].CopyFrom(weight)
    onnx.save(model, tmp_path / "m.onnx")
    called = opu_fuse("compile", tmp_path / "m.onnx", "--hw", "opu-tiny", "-o", tmp_path / "m.opu")
    (line,) = [line for line in called.err.splitlines() if line.startswith("warning: ")]
    assert called.code == 0
    assert "only 0 % of the multiplications run on opu-tiny" in line
    reason = "; compile the float model (the scales of ConvInteger "
    assert reason not in line, "each reason once"
    assert called.out.count(reason) == 1
    quiet = ("-q", "compile", tmp_path / "m.onnx", "--hw", "opu-tiny", "-o", tmp_path / "m.opu")
    assert reason in opu_fuse(*quiet).err


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_model(case, opu_fuse, tmp_path):
    build, words = BAD_MODELS[case]
    source, target = tmp_path / "m.onnx", tmp_path / "m.opu"
    onnx.save(build(), source)
    refused(opu_fuse("compile", source, "--hw", "opu-tiny", "-o", target), *words)
    assert not target.exists()


def test_libraries_say_nothing_beside_our_line(opu_fuse, tmp_path):
    model = conv_model()
    model.graph.node[0].attribute.append(helper.make_attribute("auto_pad", b"\xff"))
    onnx.save(model, tmp_path / "m.onnx")
    called = opu_fuse("partition", tmp_path / "m.onnx", "--hw", "opu-tiny")
    refused(called, "auto_pad")
    assert called.err.count("\n") == 1, called.err


def test_missing_model(opu_fuse, tmp_path):
    called = opu_fuse("compile", tmp_path / "no.onnx", "--hw", "opu-tiny", "-o", tmp_path / "m.opu")
    refused(called, "no.onnx")


def test_a_text_file_is_not_onnx(opu_fuse, tmp_path):
    (tmp_path / "m.onnx").write_text("hello, I am not a model\n")
    called = opu_fuse("compile", tmp_path / "m.onnx", "--hw", "opu-tiny", "-o", tmp_path / "m.opu")
    refused(called, "m.onnx", "ONNX")


def test_calibration_of_the_wrong_shape(opu_fuse, model_file, tmp_path):
    np.savez(tmp_path / "c.npz", input=np.zeros((4, 3, 9, 9), np.float32))
    called = opu_fuse(
        "compile",
        model_file,
        "--hw",
        "opu-tiny",
        "-o",
        tmp_path / "m.opu",
        "--calibration",
        tmp_path / "c.npz",
    )
    refused(called, "c.npz", "12", "9")
    assert not (tmp_path / "m.opu").exists()


def test_unknown_spec_lists_the_known_ones(opu_fuse, model_file, tmp_path):
    called = opu_fuse("compile", model_file, "--hw", "opu-2048", "-o", tmp_path / "m.opu")
    refused(called, "opu-2048", "opu-1024", "opu-tiny")


def test_machine_that_cannot_be_built(opu_fuse, model_file, tmp_path):
    spec = spec_file(tmp_path, lambda tree: tree.update(build=False))
    called = opu_fuse("compile", model_file, "--hw", spec, "-o", tmp_path / "m.opu")
    refused(called, "build: false", "compile for another machine")


def test_free_scales_on_a_machine_that_only_shifts(opu_fuse, model_file, tmp_path):
    out = tmp_path / "m.opu"
    called = opu_fuse("compile", model_file, "--hw", "opu-classic", "--scales", "free", "-o", out)
    refused(called, "opu-classic", "multiplier_bits 0", "--scales pow2")


QUANTISED = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float s = {0.3}, int8 z = {0}, int8[4,4,1,1] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}> {
    a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)  v = DequantizeLinear(w, s, z)
    [c] d = Conv(b, v)  e = QuantizeLinear(d, s, z)  y = DequantizeLinear(e, s, z)
}"""


@pytest.mark.parametrize("options", [(), ("--scales", "pow2")])
def test_a_model_with_scales_of_its_own_gets_no_others(opu_fuse, tmp_path, options):
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(QUANTISED), model)
    compiled = ("compile", model, "-o", tmp_path / "m.opu", *options, "--hw")
    called = opu_fuse(*compiled, "opu-classic")
    assert called.code == 0
    assert "only 0 % of the multiplications run on opu-classic" in called.err
    assert "host: c: ratio 0.3" in called.out
    assert "ratio 0.3" not in called.err, "each reason once"
    assert "is not a power of two; quantise the model with scales that are" in called.out
    assert ("--scales" in called.err) is bool(options)
    called = opu_fuse(*compiled, "opu-tiny")
    assert called.code == 0
    said = "warning: the model is quantised already: --scales is not used" in called.err
    assert said is bool(options)


def test_unwritable_output(opu_fuse, model_file, tmp_path):
    called = opu_fuse("compile", model_file, "--hw", "opu-tiny", "-o", tmp_path / "no" / "m.opu")
    refused(called, "no/m.opu")


def spec_file(tmp_path, change):
    tree = yaml.safe_load((hw_specs_dir() / "opu-tiny.yaml").read_text())
    change(tree)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def rename(tree, folder, old, new):
    tree[folder][new] = tree[folder].pop(old)


BAD_SPECS = {
    "unknown_key": (lambda t: rename(t, "array", "units", "unitz"), ["unitz"]),
    "unknown_kind": (lambda t: t["dataflow"]["modules"]["pool"].update(kind="poool"), ["poool"]),
    "edge_to_missing_module": (
        lambda t: t["dataflow"]["edges"].update(add=["nothing"]),
        ["nothing"],
    ),
    "operator_on_absent_kind": (
        lambda t: t["dataflow"]["operators"].update(upsample=["upsample"]),
        ["upsample"],
    ),
    "buffer_too_small": (lambda t: t["buffers"]["weight"].update(words=2), ["weight"]),
    "encoding_too_narrow": (lambda t: t["buffers"]["feature"].update(words=1 << 23), ["feature"]),
}


@pytest.mark.parametrize("case", BAD_SPECS)
def test_mistake_in_a_spec_is_named_with_file_and_line(case, opu_fuse, model_file, tmp_path):
    change, words = BAD_SPECS[case]
    path = spec_file(tmp_path, change)
    checked = opu_fuse("hw", "check", path)
    assert checked.code == 1
    assert "mine.yaml:" in checked.err
    for word in words:
        assert word in checked.err
    compiled = opu_fuse("compile", model_file, "--hw", path, "-o", tmp_path / "m.opu")
    assert compiled.code == 1
    assert "mine.yaml:" in compiled.err
    assert not (tmp_path / "m.opu").exists()


@pytest.mark.parametrize("verb", [("run",), ("inspect",)])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "not_a_zip"])
def test_damaged_program(verb, damage, opu_fuse, program_file, tmp_path):
    data = bytearray(program_file.read_bytes())
    match damage:
        case "truncated":
            data = data[: len(data) // 2]
        case "flipped":
            data[len(data) // 3] ^= 0x40
        case "empty":
            data = bytearray()
        case _:
            data = bytearray(b"PK but not really a program file")
    path = tmp_path / "bad.opu"
    path.write_bytes(data)
    refused(opu_fuse(*verb, path), "bad.opu")


@pytest.mark.parametrize("verb", ["run", "inspect", "report"])
def test_a_model_is_no_program(verb, opu_fuse, model_file, tmp_path):
    page = ("-o", tmp_path / "r.html") if verb == "report" else ()
    called = opu_fuse(verb, model_file, *page)
    refused(called, "net.onnx: is a model, not a program; compile it first (opu-fuse compile)")


def test_program_for_another_machine(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--hw", "opu-1024")
    refused(called, "opu-1024", "compile")
    assert "noise" not in called.err


def test_waves_of_another_type_are_refused_before_the_run(opu_fuse, program_file, tmp_path):
    called = opu_fuse("run", program_file, "--engine", "rtl", "--waves", tmp_path / "w.txt")
    refused(called, "waves of type '.txt'; use .fst or .vcd")
    assert "noise" not in called.err


def test_input_of_the_wrong_shape(opu_fuse, program_file, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 5, 5), np.float32))
    refused(
        opu_fuse("run", program_file, "--input", f"input={tmp_path / 'x.npy'}"), "input", "12", "5"
    )


def test_unknown_input_name(opu_fuse, program_file, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 12, 12), np.float32))
    refused(
        opu_fuse("run", program_file, "--input", f"imput={tmp_path / 'x.npy'}"), "imput", "input"
    )


def test_option_of_another_engine_is_wrong_usage(opu_fuse, program_file, tmp_path):
    called = opu_fuse("run", program_file, "--waves", tmp_path / "w.fst")
    assert called.code == 2
    assert "--waves" in called.err


def test_greedy_grouping_that_is_illegal_is_refused_by_compile(opu_fuse, tmp_path):
    weight = numpy_helper.from_array(np.ones((3, 3, 3, 3), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))
    pool: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="pool1", **pool),
        helper.make_node("Relu", ["p1"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["y"], name="pool2", **pool),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3, 4, 4))
    model = helper.make_model(
        helper.make_graph(nodes, "g1", [x], [y], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, tmp_path / "g1.onnx")
    arguments = (tmp_path / "g1.onnx", "--hw", "opu-tiny", "--strategy", "greedy")
    shown = opu_fuse("partition", *arguments, "--json")
    assert shown.code == 0
    assert '"legal": false' in shown.out
    refused(
        opu_fuse("compile", *arguments, "-o", tmp_path / "m.opu"), "greedy", "--strategy matched"
    )
    assert not (tmp_path / "m.opu").exists()


def test_sizes_of_dynamic_dimensions(opu_fuse, tmp_path):
    source, target = tmp_path / "m.onnx", tmp_path / "m.opu"
    onnx.save(conv_model(shape=(1, 3, "height", "width")), source)
    both = ("compile", source, "--hw", "opu-tiny", "-o", target, "--dim", "height=8")
    refused(opu_fuse(*both), "--dim width=…", "--shape x=1,3,8,width")
    assert opu_fuse(*both, "--shape", "x=1,3,8,9").code == 0
    groups = opu_fuse("partition", source, "--hw", "opu-tiny", "--shape", "x=1,3,8,9")
    assert groups.code == 0
    assert "1 group," in groups.out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--shape", "1,3,8,8"), "no NAME="),
        (("--shape", "x=1,3,a,8"), "'1,3,a,8' is not a list of numbers"),
        (("--dim", "height=8,9"), "one number"),
        (("--dim", "h=8", "--dim", "h=9"), "--dim h is repeated"),
    ],
)
def test_sizes_that_are_no_numbers_are_wrong_usage(given, message, opu_fuse, tmp_path):
    onnx.save(conv_model(shape=(1, 3, "height", 8)), tmp_path / "m.onnx")
    called = opu_fuse("partition", tmp_path / "m.onnx", "--hw", "opu-tiny", *given)
    assert called.code == 2
    assert message in " ".join(called.err.replace("│", " ").split())


@pytest.mark.parametrize("command", ["compile", "partition"])
def test_the_help_names_every_form_of_model_that_is_taken(opu_fuse, command):
    words = " ".join(opu_fuse(command, "--help").out.split())
    assert "ONNX or TFLite model: float, QDQ or QOperator" in words


def test_a_check_prints_its_result_and_the_table_on_request(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--check")
    assert called.code == 0
    assert "┃" not in called.out
    assert "0 of 13,090 values differ in 16 tensors, largest difference 0; 1 output compared" in (
        called.out
    )
    assert "┃ group" in opu_fuse("run", program_file, "--check", "--groups").out
    assert "┃" not in opu_fuse("run", program_file).out, "predictions are no result of a run"


def test_a_timed_run_prints_its_table_and_its_total(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--engine", "cycle")
    assert "┃ group" in called.out
    last = called.out.splitlines()[-1]
    assert re.fullmatch(
        r"cycle engine: [\d,]+ cycles, [\d.]+ ms at 100 MHz, [\d,]+ bytes of DRAM traffic", last
    )


def test_each_reason_for_the_host_is_printed_once(opu_fuse, tmp_path):
    import onnx_ir as ir

    from opu_fuse import zoo

    ir.save(zoo.build("unet", image=16), tmp_path / "u.onnx")
    called = opu_fuse("compile", tmp_path / "u.onnx", "--hw", "opu-tiny", "-o", tmp_path / "u.opu")
    lines = [line for line in called.out.splitlines() if line.startswith(("host", "not fused"))]
    assert lines[0].startswith("host CPU: 6 operators in 6 segments: ")
    assert [line.partition(": no module")[0] for line in lines[1:]] == [
        "host: up2.resize, up1.resize, up0.resize: upsample",
        "host: up2.concat, up1.concat, up0.concat: concat",
    ]
    assert "not fused, 3 operators: Concat" in opu_fuse("inspect", tmp_path / "u.opu").out
