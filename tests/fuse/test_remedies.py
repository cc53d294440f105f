"""Each remedy names what the user has: nodes and values of the file, modules of the spec."""

import itertools
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

from opu_fuse.errors import UserError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import partition_model
from tests.backend.node_cases import cases_by_operator
from tests.fuse.remedies import levers, strange_names
from tests.fuzz.network_case import draw

FOLDER = Path(__file__).resolve().parents[1] / "regressions"
FILES = sorted((*FOLDER.glob("*.onnx"), *(FOLDER / "found").glob("*.onnx")))
MACHINES = ("opu-tiny", "opu-light", "opu-classic", "opu-1024t", "opu-micro")
SHARE = 5
"""Of the models of a kind one in so many is looked at in the fast tier."""


def wrong(model: onnx.ModelProto, *machines: str) -> list[str]:
    """A model that is refused has no remedies of this kind."""
    found: list[str] = []
    for name in machines:
        hw = load_hw(name)
        try:
            dfg, partition = partition_model(model, hw)
        except UserError:
            continue
        found += [f"{name}: {line}" for line in strange_names(model, dfg, hw, partition)]
    return found


def machines(number: int, count: int) -> list[str]:
    """Some in turn."""
    return [MACHINES[(number + i) % len(MACHINES)] for i in range(count)]


def files(share: int) -> list[Path]:
    return [p for n, p in enumerate(FILES) if n % share == 0 or p.parent.name == "found"]


@pytest.mark.parametrize("path", files(SHARE), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_remedies_for_files_of_bug_reports_name_what_is_in_them(path):
    assert wrong(onnx.load(path), *machines(FILES.index(path), 1)) == []


@pytest.mark.parametrize("seed", range(60, 75))
@pytest.mark.filterwarnings("ignore")
def test_remedies_for_random_networks_name_what_is_in_them(seed):
    assert wrong(draw(seed).proto(), *machines(seed, 2)) == []


def node_models(share: int) -> list[tuple[str, onnx.ModelProto]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = itertools.chain.from_iterable(cases_by_operator().values())
        return [(c.name, c.model) for n, c in enumerate(every) if n % share == 0]


@pytest.mark.filterwarnings("ignore")
def test_remedies_for_single_operators_name_what_is_in_their_models():
    found = {name: wrong(model, "opu-light") for name, model in node_models(48 * SHARE)}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.filterwarnings("ignore")
def test_an_operator_of_an_inlined_branch_is_named_by_its_if():
    name = "test_affine_grid_2d_expanded"
    dfg, partition = partition_model(dict(node_models(1))[name], load_hw("opu-light"))
    named = [lever.text for _, lever in levers(partition) if "export If_1 in" in lever.text]
    assert named, "the model has no such operator any more"
    assert not [node.name for node in dfg.nodes if node.name == "If_1"]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_all_remedies_name_what_the_user_has():
    models = [(p.stem, onnx.load(p), 5) for p in FILES]
    models += [(name, model, 1) for name, model in node_models(1)]
    models += [(f"seed {seed}", draw(seed).proto(), 3) for seed in range(1000, 1300)]
    found = {
        name: wrong(model, *machines(n, count)) for n, (name, model, count) in enumerate(models)
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def reasons(text: str, machine: str) -> dict[str, str]:
    """By operator on the host or edge, of a model with seeded weights."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(1)
    for weight in model.graph.value_info:
        size = [d.dim_value for d in weight.type.tensor_type.shape.dim]
        data = rng.normal(size=size).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, weight.name))
    model.graph.ClearField("value_info")
    dfg, found = partition_model(model, load_hw(machine))
    named = {dfg[h.node].name: h.why.help for h in found.host}
    return named | {
        f"{dfg[b.source].name} {dfg[b.target].name}": b.why.help for b in found.boundaries
    }


def test_a_scale_before_a_softmax_that_the_host_computes_asks_for_no_module():
    text = """g (float[1,4,8,8] x, float[1,4,8,8] k) => (float[1,4,8,8] y) <float s = {0.25}> {
      [a] a = MatMul(x, k)  [m] m = Mul(a, s)  [p] y = Softmax(m) }"""
    for name, help_ in reasons(text, "opu-light").items():
        assert "module" not in help_, name


def test_a_negated_operand_is_no_constant_of_the_users():
    text = """g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w> {
      [c] a = Conv(x, w)  [d] b = Conv(x, w)  [s] y = Sub(a, b) }"""
    for help_ in reasons(text, "opu-light").values():
        assert "negative" not in help_


def test_a_float_model_is_not_asked_to_be_quantised():
    text = """g (float[1,4,8,8] x, int64 one) => (float[1,4,8,8] y) <float[4,4,1,1] w> {
      [n] n = CumSum(x, one)  [c] a = Conv(n, w)  [s] y = Add(a, n) }"""
    for help_ in reasons(text, "opu-light").values():
        assert "quantise" not in help_
        assert "float model" not in help_


def test_every_lever_of_a_network_is_about_something():
    dfg, partition = partition_model(onnx.load(FILES[0]), load_hw("opu-tiny"))
    assert all(lever.text.strip() for _, lever in levers(partition))
    assert dfg.calls
