"""Max pools as sequences of 3 x 3 pools: the same maxima, whatever the padding."""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.numpy_kernels import window_max
from opu_fuse.dfg.split_max_pools import small_windows
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.cycle.run import run_cycle

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def network(kernel: int, pads: tuple[int, ...], size: tuple[int, int]) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,70,{size[0]},{size[1]}] x) => (float[1,70,h,w] y) {{
      y = MaxPool<kernel_shape=[{kernel},{kernel}], pads={list(pads)}>(x) }}""")


@pytest.mark.parametrize("size", [(7, 9), (10, 10), (15, 8)])
@pytest.mark.parametrize(("kernel", "pads"), [
    (5, (2, 2, 2, 2)), (5, (0, 0, 0, 0)), (5, (1, 2, 0, 1)), (7, (3, 3, 3, 3)), (7, (2, 0, 1, 3)),
    (13, (6, 6, 6, 6)),
])  # fmt: skip
def test_three_by_three_pools_have_the_same_maxima(kernel, pads, size, rng):
    if min(size) + 2 * min(pads) < kernel:
        pytest.skip("no window fits")
    dfg = build_dfg(prepare(network(kernel, pads, size), quantised=False).canonical)
    (node,) = (n for n in dfg.calls if n.op == "max_pool")
    x = rng.integers(-128, 128, (1, 70, *size)).astype(np.int8)
    parts = small_windows(node)
    assert parts is not None
    found = x
    for part in parts:
        found = window_max(found, part)
    np.testing.assert_array_equal(found, window_max(x, node.attrs))


@pytest.mark.parametrize("kernel", [2, 3, 4, 6])
def test_other_windows_remain_whole(kernel):
    dfg = build_dfg(prepare(network(kernel, (0,) * 4, (9, 9)), quantised=False).canonical)
    (node,) = (n for n in dfg.calls if n.op == "max_pool")
    assert small_windows(node) is None


def test_a_pool_in_parts_takes_fewer_cycles():
    model, hw = network(5, (2,) * 4, (10, 10)), load_hw("opu-1024a")
    program = opu_fuse.compile(model, hw)
    x = {"x": np.random.default_rng(0).normal(size=(1, 70, 10, 10)).astype(np.float32)}
    checked = check(program.bundle, x, program.run(x, capture=True))
    assert checked.passed
    assert checked.mismatches == 0
    assert [op.op for g in program.bundle.groups for op in g.ops] == ["max_pool", "max_pool"]
    assert run_cycle(program.bundle, hw).counters["cycles"] < 10 * 10 * 2 * 25
