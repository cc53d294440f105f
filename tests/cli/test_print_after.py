"""`compile --print-after`: what each stage makes, as text."""

import re

import onnx
import pytest

from opu_fuse.errors import UserError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import STAGES, Options, compile_model, compile_prepared
from opu_fuse.texts import TEXTS
from opu_fuse.zoo.builder import Net

MODEL = """<ir_version: 8, opset_import: ["": 17]>
net (float[1,4,8,8] image) => (float[1,4,4,4] y) <float[4,4,3,3] w = {WEIGHTS}> {
    [conv] a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w)
    [act] b = Relu(a)
    [squash] c = Sigmoid(b)
    [sum] d = Add(c, b)
    [last] y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)
}"""
MODEL = MODEL.replace("{WEIGHTS}", "{" + ", ".join(f"{i % 7 - 3}." for i in range(144)) + "}")


@pytest.fixture
def compiling(tmp_path):
    """The arguments of a command that compiles a network with an operator on the host."""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return "compile", path, "--hw", "opu-tiny", "-o", tmp_path / "net.opu"


@pytest.mark.parametrize("stage", ["dfg", "partition", "plan"])
def test_a_stage_as_text(golden, stage):
    texts = []
    options = Options(print_after=(stage,))
    prepared = prepare(onnx.parser.parse_model(MODEL))
    for _ in range(2):
        compile_prepared(prepared, load_hw("opu-tiny"), options, write=texts.append)
    first, second = texts
    assert first == second
    golden("text.txt", first)


def test_text_tells_what_runs_beside_others_and_what_stays_on_chip():
    net = Net("beside", seed=3)
    x = net.conv(net.input("x", (1, 16, 40, 30)), "stem", out=16, kernel=3, pads=1)
    wide = net.conv(x, "wide", out=64, kernel=3, pads=1)
    pool = net.max_pool(x, "pool", kernel=3, stride=1, pads=1)
    y = net.conv(net.concat([wide, pool], "joined"), "last", out=8, kernel=1)
    texts: list[str] = []
    options = Options(print_after=("partition", "plan"))
    model = net.finish(net.conv(y, "end", out=8, kernel=1))
    compile_model(model, load_hw("opu-light"), options, write=texts.append)
    groups = dict(re.findall(r"^group (\d+): (\w+) ", texts[0], re.MULTILINE))
    ((inner, outer),) = re.findall(
        r"^tiles of group (\d+): .*, between the tiles of group (\d+)$", texts[0], re.MULTILINE
    )
    assert (groups[inner], groups[outer]) == ("pool", "wide")
    assert re.findall(r"^ *writes (\w+) .*, resident$", texts[1], re.MULTILINE) == [
        "stem",
        "last",
    ]


def test_all_stages_in_their_order(opu_fuse, compiling):
    plain = opu_fuse(*compiling)
    called = opu_fuse(*compiling, "--print-after", "all")
    assert called.out == plain.out
    heads = [x.removeprefix("# after ") for x in called.err.splitlines() if x.startswith("# after")]
    assert heads == list(STAGES) == list(TEXTS)
    for text in ("[conv]", "%0 image: var", "group 0: conv [ipa]", "segment 0: machine", "load."):
        assert text in called.err


def test_only_stages_that_were_asked_for(opu_fuse, compiling):
    err = opu_fuse(*compiling, "--print-after", "plan", "--print-after", "dfg").err
    heads = [line for line in err.splitlines() if line.startswith("# ")]
    assert heads == ["# after dfg", "# after plan"]


def test_an_unknown_stage_is_refused_before_any_work(opu_fuse, compiling):
    called = opu_fuse(*compiling, "--print-after", "tiles")
    assert (called.code, called.out) == (1, "")
    assert called.err == (
        "error: --print-after tiles: there is no stage 'tiles'; stages are model, dfg, partition, "
        "plan, program, or all for each\n"
    )
    with pytest.raises(UserError, match="there is no stage"):
        Options(print_after=("tiles",))


def test_stages_in_front_of_an_error_are_shown(opu_fuse, compiling):
    called = opu_fuse(*compiling, "--print-after", "all", "--strategy", "greedy")
    heads = [line for line in called.err.splitlines() if line.startswith("# after")]
    assert called.code == 1
    assert heads == ["# after model", "# after dfg"]
