"""`--strategy`: every strategy there is, from file to text."""

import json

import onnx
import pytest
from onnx import TensorProto, helper

from opu_fuse.fuse.strategies.registry import STRATEGIES
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.pipeline import Program


def test_the_command_line_offers_every_strategy_there_is():
    assert list(STRATEGIES) == list(StrategyName)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partition_and_json_and_explain_know_every_strategy(opu_fuse, model_file, strategy):
    base = ("partition", model_file, "--hw", "opu-tiny", "--strategy", strategy)
    document = json.loads(opu_fuse(*base, "--json").out)
    assert document["strategy"] == strategy
    assert ("search" in document) is (strategy == "optimal")
    named = document["groups"][0]["ops"][0]["name"]
    assert opu_fuse(*base, "--explain", named).out.startswith(f"{named} (")
    assert f"strategy {strategy}:" in opu_fuse(*base, "--explain").out


def test_compile_says_what_optimal_gained(opu_fuse, model_file, tmp_path):
    path = tmp_path / "net.opu"
    called = opu_fuse(
        "compile", model_file, "--hw", "opu-tiny", "--strategy", "optimal", "-o", path
    )
    assert called.code == 0
    assert "; without these changes " in called.out
    assert len(Program.load(path).bundle.groups) > 0


def test_what_the_compiler_adds_and_changes_is_told_apart(opu_fuse, tmp_path):
    """A value in two concatenations, and a pool behind a third."""
    model, program = tmp_path / "net.onnx", tmp_path / "net.opu"
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 4, 1, 1), [0.5] * 16)
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4,6,6] x) => (float[1,8,6,6] y, float[1,8,6,6] z, float[1,8,3,3] p) {
        [a] a = Conv(x, w)
        [b] b = Relu(x)
        [left] y = Concat<axis=1>(a, b)
        [right] z = Concat<axis=1>(b, a)
        [c] c = Conv(x, w)
        [d] d = Conv(x, w)
        [join] j = Concat<axis=1>(c, d)
        [pool] p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(j) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(weight)
    onnx.save(proto, model)
    given = ("--hw", "opu-1024")
    document = json.loads(opu_fuse("partition", model, *given, "--json").out)
    copies = [f"copy: {c['name']}: {c['reason']}" for c in document["copies"]]
    (rewrite,) = [f"rewrite: {r['name']}: {r['reason']}" for r in document["rewrites"]]
    assert copies == [
        "copy: left/copy0: a is part of another concatenation",
        "copy: left/copy1: b is part of another concatenation",
    ]
    assert rewrite.startswith("rewrite: pool: moved into the branches of join")
    named = {op["name"] for group in document["groups"] for op in group["ops"]}
    assert named == {"a", "b", "left", "right", "c", "d", "pool/0", "pool/1", "pool"}
    lines = [
        opu_fuse("partition", model, *given, "--explain").out.splitlines(),
        opu_fuse("compile", model, *given, "-o", program).out.splitlines(),
    ]
    for found in lines:
        assert [line for line in found if line.startswith(("copy: ", "rewrite: "))] == [
            rewrite,
            *copies,
        ]


def test_an_unknown_strategy_is_wrong_usage(opu_fuse, model_file):
    called = opu_fuse("partition", model_file, "--hw", "opu-tiny", "--strategy", "fastest")
    assert called.code == 2
    assert "dominator" in called.err
