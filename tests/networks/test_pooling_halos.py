"""Maximum pools whose windows see two tiles: the lower one takes over what the upper has found."""

from typing import Any

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.engine import run
from opu_fuse.tiling import fastest_shape
from tests.dfg.canonical import canonical
from tests.networks.held import hold, hold_each_image, inputs_of


@pytest.fixture
def always(monkeypatch):
    """Carried wherever a tile gains by it, however long post takes."""
    monkeypatch.setattr(fastest_shape, "HIDDEN", 0)
    fastest_shape.fastest_shape.cache_clear()
    yield
    fastest_shape.fastest_shape.cache_clear()


def pooled(pool, channels=20, rows=61, cols=23, out=12, behind="y = Relu(p)", act="r = Relu(a)"):
    """Convolution, activation, a maximum pool (its attributes), and what stands behind it."""
    return canonical(
        f"""g (float[1,{channels},{rows},{cols}] x, float[{out},{channels},3,3] w, float[{out}] b,
        float[9,{out},3,3] wb) => (float[N,M,H,W] y) {{
        a = Conv<pads=[1,1,1,1]>(x, w, b)
        {act}
        p = MaxPool<{pool}>(r)
        {behind} }}""",
        seed=3,
    )


POOLS = {
    "padding above": "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]",
    "no padding": "kernel_shape=[3,3], strides=[2,2]",
    "windows over the end": "kernel_shape=[3,3], strides=[2,2], ceil_mode=1",
    "one row further": "kernel_shape=[2,2], strides=[1,1]",
    "two rows": "kernel_shape=[5,3], strides=[3,1], pads=[2,1,1,1]",
    "half of every window": "kernel_shape=[4,2], strides=[2,2], pads=[1,0,1,0]",
}
NOT_CARRIED = {
    "windows of three tiles": "kernel_shape=[3,3], strides=[1,1]",
    "windows that meet": "kernel_shape=[2,2], strides=[2,2]",
}
MACHINES = ("opu-tiny", "opu-1024-lean")


def carried(compiled):
    """Names of the layers whose tiles leave maxima for those below."""
    parts = [part for parts in compiled.plan.layers.values() for part in parts]
    return [p.layer.name for p in parts if p.layer.shape.pools_with_halo and len(p.tiles) > 1]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [*POOLS, *NOT_CARRIED])
def test_a_pool_has_the_golden_models_bits(name, machine, rng):
    hw = load_hw(machine)
    large: dict[str, Any] = {"rows": 161, "cols": 123} if machine != "opu-tiny" else {}
    model = pooled((POOLS | NOT_CARRIED)[name], **large)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    assert bool(carried(compiled)) == (name in POOLS)
    hold(compiled, hw, inputs_of(compiled, rng))


VARIANTS = {
    "several words of channels": {"out": 70},
    "negative maxima": {
        "act": "r = Identity(a)",
        "behind": "q = Conv<pads=[1,1,1,1]>(p, wb) y = Relu(q)",
    },
    "one column": {"cols": 1},
    "the next layer reads it": {"behind": "q = Conv<pads=[1,1,1,1]>(p, wb) y = Relu(q)"},
    "two read it": {
        "behind": "q = Conv<pads=[1,1,1,1]>(p, wb) s = Conv<pads=[1,1,1,1]>(p, wb) y = Add(q, s)"
    },
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cascades", ["never", "auto", "always"])
@pytest.mark.parametrize("name", VARIANTS)
def test_whatever_reads_them_and_however_they_are_made(name, cascades, rng):
    hw = load_hw("opu-tiny")
    model = pooled(POOLS["padding above"], **VARIANTS[name])
    compiled = compile_model(model, hw, Options(reuse_memory=False, cascades=cascades))
    assert carried(compiled)
    hold(compiled, hw, inputs_of(compiled, rng))


@pytest.mark.usefixtures("always")
def test_an_image_begins_without_maxima_and_a_tile_of_all_rows_leaves_none():
    compiled = compile_model(pooled(POOLS["padding above"], rows=14), load_hw("opu-tiny"))
    assert carried(compiled)
    ((part, *_), *_) = compiled.plan.layers.values()
    shape = part.layer.shape
    rows = shape.out_rows
    assert [r for r in range(2 * rows) if not shape.reads_halo(r)] == [0, rows]
    assert [r for r in range(1, 2 * rows) if shape.stores_halo(r)] == list(range(1, rows))


@pytest.mark.usefixtures("always")
def test_no_image_of_a_batch_takes_over_what_another_has_found():
    hw = load_hw("opu-tiny")
    model = pooled(POOLS["padding above"])
    assert carried(hold_each_image(model, hw))


def test_rows_are_made_once():
    hw = load_hw("opu-1024")
    model = pooled(
        POOLS["no padding"], channels=64, out=64, rows=224, cols=112, behind="y = Relu(p)"
    )
    compiled = compile_model(model, hw)
    assert carried(compiled)
    cycles = run(compiled.bundle, hw, engine="cycle").counters["cycles"]
    ideal = 224 * 112 * 9 * 64 * 64 / hw.macs
    assert cycles < 1.05 * ideal, "an eighth more when tiles make their first row again"


def test_the_compiler_knows_what_carrying_takes():
    hw = load_hw("opu-1024")
    model = pooled(POOLS["padding above"], channels=64, out=64, rows=150, cols=112)
    compiled = compile_model(model, hw)
    assert carried(compiled)
    predicted = sum(group.cycles for group in compiled.bundle.groups)
    taken = run(compiled.bundle, hw, engine="cycle").counters["cycles"]
    assert abs(predicted - taken) < 0.05 * taken
