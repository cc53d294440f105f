"""First layers whose windows are unfolded while their image is loaded: the golden model's bits."""

from dataclasses import replace

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.engine import run
from tests.dfg.canonical import canonical
from tests.networks.held import hold, hold_each_image, inputs_of
from tests.rtl.machines import write_machine
from tests.tiers import by_night

MACHINES = ("opu-1024", "images")


@pytest.fixture(scope="module", params=MACHINES)
def hw(request, tmp_path_factory):
    return load_hw(write_machine(request.param, tmp_path_factory.mktemp("specs")))


def stem(
    channels=3,
    rows=40,
    cols=45,
    out=32,
    kernel=(3, 3),
    strides=(1, 1),
    pads=(1, 1, 1, 1),
    behind="y = Relu(a)",
):
    """A convolution of an image, and what stands behind it: operators from `a` to `y`."""
    (down, across), (tall, wide) = strides, kernel
    return canonical(
        f"""g (float[1,{channels},{rows},{cols}] x, float[{out},{channels},{tall},{wide}] w,
        float[{out}] b, float[9,{out},3,3] wb, float[9,{channels},1,1] wc,
        float[9,{channels},5,5] we) => (float[N,M,H,W] y) {{
        a = Conv<strides=[{down},{across}], pads=[{",".join(map(str, pads))}]>(x, w, b)
        {behind} }}""",
        seed=5,
    )


STEMS = {
    "3x3": {},
    "3x3 with strides": {"strides": (2, 2)},
    "5x5": {"kernel": (5, 5), "pads": (2, 2, 2, 2)},
    "7x7 with strides": {"kernel": (7, 7), "strides": (2, 2), "pads": (3, 3, 3, 3), "out": 64},
    "no padding": {"pads": (0, 0, 0, 0)},
    "padding at the end": {"strides": (2, 2), "pads": (0, 0, 1, 1)},
    "more padding than image": {"kernel": (7, 7), "pads": (9, 8, 7, 6), "rows": 5, "cols": 9},
    "strides over rows": {"strides": (4, 3)},
    "a wide window": {"kernel": (3, 9), "pads": (1, 4, 1, 4)},
    "a tall window": {"kernel": (7, 1), "pads": (3, 0, 3, 0)},
    "one channel": {"channels": 1},
    "two channels, few outputs": {"channels": 2, "out": 7},
    "several words of outputs": {"out": 150},
    "a row of many tiles": {"rows": 9, "cols": 700},
    "many rows": {"rows": 300, "cols": 33},
}


def im2row(compiled):
    """Names of the layers that read unfolded rows."""
    layers = [part.layer for parts in compiled.plan.layers.values() for part in parts]
    return [layer.name for layer in layers if layer.shape.im2row is not None]


NOT_ON = {
    "images": {"a row of many tiles"},  # its image buffer holds no three rows
    "opu-1024": {
        *("3x3 with strides", "7x7 with strides", "padding at the end", "strides over rows"),
        *("more padding than image", "a tall window", "two channels, few outputs"),
    },  # the map is kept on chip, so that it would wait for all of its input
}


@pytest.mark.parametrize("name", STEMS)
def test_a_stem_has_the_golden_models_bits(name, hw, rng):
    scales = "pow2-asymmetric"  # padding is not zero
    compiled = compile_model(stem(**STEMS[name]), hw, Options(reuse_memory=False, scales=scales))
    assert bool(im2row(compiled)) == (name not in NOT_ON[hw.name])
    hold(compiled, hw, inputs_of(compiled, rng))


BEHIND = {
    "a pool": (
        {"rows": 81, "out": 9},
        "p = MaxPool<kernel_shape=[3,3], strides=[2,2]>(a) y = Relu(p)",
    ),
    "somebody else reads the image": (
        {"rows": 140, "cols": 100, "out": 9},
        "c = Conv(x, wc) y = Add(a, c)",
    ),
    "two layers, two kernels": (
        {"rows": 140, "cols": 100, "out": 9},
        "c = Conv<pads=[2,2,2,2]>(x, we) y = Add(a, c)",
    ),
    "a chain of layers": (
        {"rows": 130, "cols": 120, "out": 20},
        "r = Relu(a) d = Conv<pads=[1,1,1,1]>(r, wb) y = Relu(d)",
    ),
}


@pytest.mark.parametrize("cascades", by_night(["auto", "always", "never"], ["auto"]))
@pytest.mark.parametrize("name", BEHIND)
def test_what_stands_behind_an_unfolded_stem_has_them_too(name, cascades, hw, rng):
    sizes, behind = BEHIND[name]
    options = Options(reuse_memory=False, cascades=cascades)
    compiled = compile_model(stem(**sizes, behind=behind), hw, options)
    assert im2row(compiled)
    hold(compiled, hw, inputs_of(compiled, rng))


@pytest.mark.parametrize("name", ["3x3", "many rows"])
def test_every_image_of_a_batch_is_unfolded(name, hw):
    model = stem(**STEMS[name])
    assert im2row(hold_each_image(model, hw))


def test_the_compiler_knows_what_unfolding_takes(hw):
    compiled = compile_model(stem(rows=200, cols=110), hw)
    assert im2row(compiled)
    predicted = sum(group.cycles for group in compiled.bundle.groups)
    taken = run(compiled.bundle, hw, engine="cycle").counters["cycles"]
    assert abs(predicted - taken) < 0.05 * taken


def test_a_window_takes_as_few_visits_as_its_bytes_fill():
    hw = load_hw("opu-1024")
    folded = replace(hw, buffers=replace(hw.buffers, image=None))
    model = stem(**STEMS["7x7 with strides"] | {"rows": 224, "cols": 224})
    with_it, without = (
        run(compile_model(model, spec).bundle, spec, engine="cycle").counters["cycles"]
        for spec in (hw, folded)
    )
    assert with_it / without < 0.8, "10 visits of 16 bytes each instead of 14"
