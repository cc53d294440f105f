"""Small networks with attention, in several exporters' spellings: what runs where, and its bits."""

from functools import cache

import pytest

from benchmarks.attention import Measured, measure
from benchmarks.attention_builder import LAYER_NORMS
from benchmarks.attention_networks import SMALL, whisper
from opu_fuse import zoo
from opu_fuse.bundle.program import HostSegment
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Compilation, compile_model, partition_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.tiers import by_night

MACHINES = ("opu-light", "opu-1024t", "opu-1024a")
PAIRS = [(name, machine) for name in SMALL for machine in MACHINES]
OTHERS = [(n, m) for n, m in PAIRS if m != "opu-1024a" and n not in {"vit_tiny", "yolo11n"}]


@cache
def compiled(name: str, machine: str, **how: str) -> Compilation:
    return compile_model(SMALL[name](**how), load_hw(machine))


@cache
def measured(name: str) -> Measured:
    return measure(SMALL[name](), load_hw("opu-light"), segments=False)


@pytest.mark.parametrize(("name", "machine"), by_night(PAIRS, OTHERS))
def test_a_network_has_the_bits_of_onnxruntime(name: str, machine: str):
    program, hw = compiled(name, machine).bundle, load_hw(machine)
    inputs = noise(program)
    assert check(program, inputs, run(program, hw, inputs, capture=True)).passed


@pytest.mark.parametrize("machine", [MACHINES[0], "opu-1024a"])
@pytest.mark.parametrize("name", SMALL)
def test_float_and_quantised_network_have_the_same_groups(name: str, machine: str):
    """But for packed copies, each a group of its own, which only `compile` can time."""
    quantised = compiled(name, machine)
    dfg, partition = partition_model(SMALL[name](), load_hw(machine))
    groups = [
        [[d[m.node].name for m in group.matches] for group in p.groups]
        for d, p in ((dfg, partition), (quantised.dfg, quantised.partition))
    ]
    copies = {name for name in quantised.partition.rewrites if name.endswith("/packed")}
    assert groups[0] == [group for group in groups[1] if group[0] not in copies]


@pytest.mark.parametrize("name", SMALL)
def test_all_layers_with_constant_weights_are_on_the_machine(name: str):
    dfg, partition = partition_model(SMALL[name](), load_hw(MACHINES[0]))
    products = [dfg[op.node] for op in partition.host if dfg[op.node].op == "host:MatMul"]
    assert all(dfg[i].const is None for node in products for i in node.operands)
    assert not any(dfg[op.node].op in {"conv", "dense"} for op in partition.host)


@pytest.mark.parametrize("name", SMALL)
def test_a_machine_with_norms_leaves_none_to_the_host(name: str):
    made = compiled(name, "opu-1024a")
    left = [made.dfg[op.node] for op in made.partition.host]
    assert not [n.op for n in left if "norm" in n.op.lower() or "softmax" in n.op.lower()]


@pytest.mark.parametrize("name", ["swin_tiny", "mobilevit_s"])
def test_sequences_of_a_batch_are_rows_of_maps_on_the_machine(name: str):
    made = compiled(name, "opu-1024a")
    left = {made.dfg[op.node].op for op in made.partition.host}
    assert not left & {"host:MatMul", "host:Einsum", "host:Gather", "matmul", "transpose"}
    products = [n for n in made.dfg.calls if n.op == "matmul" and n.shape[2] > 1]
    assert len(products) == {"swin_tiny": 8, "mobilevit_s": 24}[name]  # two for each head


@pytest.mark.parametrize("name", ["swin_tiny", "mobilevit_s", "vit_tiny", "segformer_b0"])
def test_windows_shifts_and_patches_leave_nothing_to_the_host(name: str):
    assert not [
        s for s in compiled(name, "opu-1024a").bundle.segments if isinstance(s, HostSegment)
    ]


def test_six_heads_of_1500_tokens_leave_nothing_to_the_host():
    _, partition = partition_model(whisper(8, 3000, 96, 6, 1), load_hw("opu-1024a"))
    assert partition.host == ()


@pytest.mark.parametrize("layer_norm", [s for s in LAYER_NORMS if s != "operator"])
@pytest.mark.parametrize("name", [n for n in SMALL if n != "yolo11n"])  # it has none
def test_every_spelling_of_a_layer_norm_gives_the_same_groups(name: str, layer_norm: str):
    hw = load_hw(MACHINES[0])
    other = measure(SMALL[name](layer_norm=layer_norm), hw, segments=False)
    assert (other.groups, other.host) == (measured(name).groups, measured(name).host)


@pytest.mark.parametrize("how", [{"gelu": "tanh"}, {"gelu": "operator"}, {"gemm": True}], ids=str)
@pytest.mark.parametrize("name", ["vit_tiny", "bert_tiny"])
def test_every_spelling_of_gelu_and_dense_layers_gives_as_many_groups(name: str, how: dict):
    found = measure(SMALL[name](**how), load_hw(MACHINES[0]), segments=False)
    assert found.groups == measured(name).groups
    assert found.computing == measured(name).computing


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["vit_tiny", "mobilevit_s", "yolo11n"])
def test_a_network_of_the_zoo_runs_on_the_machine_with_norms(name: str):
    hw = load_hw("opu-1024a")
    made = compile_model(zoo.build(name), hw)
    assert sum(isinstance(s, HostSegment) for s in made.bundle.segments) <= 2
    inputs = noise(made.bundle)
    assert check(made.bundle, inputs, run(made.bundle, hw, inputs, capture=True)).passed
