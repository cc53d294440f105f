"""`partition --explain`, `partition --json` and `hw show --operators`, from file to text."""

import json
import re

import onnx
import pytest

MODEL = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,4,8,8] image) => (float[1,4,8,8] y) <float[4,4,3,3] w = {WEIGHTS}> {
    [conv] a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w)
    [act] b = Relu(a)
    [squash] c = Sigmoid(b)
    [last] y = Relu(c)
}"""


@pytest.fixture
def model(tmp_path):
    weights = ", ".join(f"{i % 7 - 3}." for i in range(144))
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.replace("WEIGHTS", weights)), path)
    return path


HOST = "Sigmoid: no module of this machine runs it"
HELP = (
    "add a module of kind table (`domain: act, exit: true`) after add to `dataflow.modules` and "
    "`dataflow.edges`, `buffers.table` of 512 words and 2 banks and map table to it in "
    "`dataflow.operators`"
)


def test_explain_gives_the_reason_at_every_boundary(opu_fuse, model):
    called = opu_fuse("partition", model, "--hw", "opu-tiny", "--explain")
    assert called.code == 0
    assert f"host squash: {HOST}; {HELP}" in called.out.splitlines()
    assert (
        f"  ends before squash: squash runs on the host ({HOST}); {HELP}" in called.out.splitlines()
    )
    plain = opu_fuse("partition", model, "--hw", "opu-tiny").out.splitlines()
    assert len(plain) == 3  # the heading and two groups


def test_reasons_are_left_out_whatever_the_model_is_named(opu_fuse, model):
    network = onnx.load(model)
    network.graph.name = "host of a network"
    onnx.save(network, model)
    heading, *groups = opu_fuse("partition", model, "--hw", "opu-tiny").out.splitlines()
    assert heading.startswith("host of a network on opu-tiny")
    assert len(groups) == 2


def test_explain_with_a_name_tells_the_story_of_that_operator(opu_fuse, model):
    called = opu_fuse("partition", model, "--hw", "opu-tiny", "--explain", "last")
    assert called.out.splitlines() == [
        "last (relu): group 1, module compare: last [compare]",
        "  runs on modules of kind comparator",
        f"  after squash: squash runs on the host ({HOST}); {HELP}",
        "  in a group of its own: it runs there",
        "    concat (mem_rd): not of its kind, data passes",
        "    pad (pad): not of its kind, data passes",
        "    ipa (ipa): not of its kind, data passes",
        "    add (adder): not of its kind, data passes",
        "    compare (comparator): taken",
    ]


def test_tiles_are_explained_with_what_they_cost_and_which_buffer_refused_them(opu_fuse, tmp_path):
    model = tmp_path / "big.onnx"
    weights = ", ".join(f"{i % 7 - 3}." for i in range(144))
    text = MODEL.replace("8,8", "60,50").replace("WEIGHTS", weights)
    onnx.save(onnx.parser.parse_model(text), model)
    called = opu_fuse(*compiling(model), "--explain-tiles", "act")
    assert called.code == 0
    told = called.out.splitlines()
    lines = told[next(i for i, line in enumerate(told) if line.startswith("conv + act: ")) :]
    taken, *others = (line for line in lines if "cycles" in line)
    assert taken.startswith("  taken ")
    costs = [int(line.split(": ")[1].split()[0]) for line in (taken, *others)]
    assert costs == sorted(costs)
    assert len(costs) == 8
    assert "  refused 5x13x1: needs 65 words of the psum buffer, a bank holds 64" in lines


def test_a_cascade_is_told_with_what_it_saves(opu_fuse, tmp_path):
    """Forced, it has nothing to be compared with; chosen, it has."""
    slow = tmp_path / "slow.yaml"
    slow.write_text("extends: opu-tiny\nname: slow\ndram: {bytes_per_cycle: 2}\n")
    model = tmp_path / "two.onnx"
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,60,50] x) => (float[1,8,60,50] z) '
        f"<float[8,8,1,1] w = {{{', '.join(f'{i % 7 - 3}.' for i in range(64))}}}> "
        "{ y = Conv(x, w) z = Conv(y, w) }"
    )
    parsed = onnx.parser.parse_model(text)
    for node, name in zip(parsed.graph.node, ("first", "second"), strict=True):
        node.name = name
    onnx.save(parsed, model)
    command = ("compile", model, "--hw", slow, "-o", tmp_path / "two.opu")
    asked = ("--explain-tiles", "second")
    forced = opu_fuse(*command, "--cascades", "always", *asked).out
    assert "fused stack: first, second (as asked for)" in forced.splitlines()
    assert "  in a fused stack: first, second (as asked for); its last layer" in forced
    assert "taken for a fused stack" in forced
    chosen = opu_fuse(*command, *asked).out.splitlines()
    stack = next(line for line in chosen if line.startswith("fused stack: first, second: "))
    cycles, moved, alone, moved_alone = (
        int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\b", stack)
    )
    assert moved < moved_alone
    assert cycles < alone
    never = opu_fuse(*command, "--cascades", "never", *asked).out
    assert "fused stack" not in never.replace("  in no fused stack", "")


def test_an_operator_without_tiles_says_where_it_runs_instead(opu_fuse, model):
    told = opu_fuse(*compiling(model), "--explain-tiles", "squash").out.splitlines()
    assert told[-1] == "squash runs on the host: it has no tiles"


def test_tiles_of_an_unknown_operator_leave_no_file(opu_fuse, model):
    called = opu_fuse(*compiling(model), "--explain-tiles", "acts")
    assert called.code == 1
    assert called.err.splitlines()[-1] == (
        "error: --explain-tiles: no operator is named 'acts'; did you mean act?"
    )
    assert not model.with_suffix(".opu").exists()


def compiling(model):
    return "compile", model, "--hw", "opu-tiny", "-o", model.with_suffix(".opu")


def test_json_reasons_say_what_would_help(opu_fuse, model):
    document = json.loads(opu_fuse("partition", model, "--hw", "opu-tiny", "--json").out)
    assert document["host"] == [{"name": "squash", "op": "table", "reason": f"{HOST}; {HELP}"}]
    assert [list(b) for b in document["boundaries"]] == [["from", "to", "reason"]] * 2


def test_operators_of_a_machine(opu_fuse):
    called = opu_fuse("hw", "show", "opu-tiny", "--operators")
    assert called.code == 0
    assert "opu-tiny: operators" in called.out
    assert "leaky_relu" in called.out
    assert opu_fuse("hw", "show", "nothing", "--operators").code == 1
