"""Several images together: the bits of as many runs one by one, in time and bytes that pay."""

import dataclasses
import re
from functools import lru_cache

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from opu_fuse import zoo
from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.memory_image import read_tensor, write_tensor
from opu_fuse.bundle.program import OLDEST_SCHEMA
from opu_fuse.cosim.expected import _element
from opu_fuse.errors import ProgramError, UserError
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.layout.batch import MOST_IMAGES, batched
from opu_fuse.layout.shape import Shape, Side, Window
from opu_fuse.pipeline import Options, compile_model, compile_prepared
from opu_fuse.report.tables import groups_table
from opu_fuse.schedule import plan
from opu_fuse.sim.compare.runs import check, compare
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from opu_fuse.tiling.candidates import Fit, Refused, candidates
from opu_fuse.tiling.tile import Rect, images_of, pre_pool_rect
from opu_fuse.units.pool import PoolKind
from opu_fuse.zoo.builder import Net
from tests.bundle.kept_programs import network
from tests.bundle.test_file import edit_manifest, refuse
from tests.report.test_tables import text_of


def windows():
    """Maps whose images stand below each other as one, and such whose windows end at an image."""
    net = Net("windows", seed=3)
    x = net.relu(net.conv(net.input("x", (1, 5, 12, 10)), "first", out=18, kernel=3, pads=1), "r")
    y = net.max_pool(net.conv(x, "point", out=18, kernel=1), "halves", kernel=2, stride=2)
    y = net.max_pool(y, "overlapping", kernel=3, stride=2)
    y = net.conv(y, "uneven", out=20, kernel=(2, 3), pads=(1, 0, 0, 2))
    y = net.add(y, net.conv(y, "beside", out=20, kernel=3, pads=1), "sum")
    return net.finish(net.dense(net.flatten(y, "flat"), "dense", out=7))


def averages():
    """Means of as many pixels as lie inside, added to and changed behind, and read on chip."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        averages (float[1,5,9,7] x) => (float[1,40,3,2] y)
        <float[18,5,1,1] w, float[18,5,3,3] u, float[40,18,3,3] v>
        { a = Conv(x, w)
          b = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(a)
          c = Conv<strides=[2,2], pads=[1,1,1,1]>(x, u)
          d = Add(b, c)  e = LeakyRelu<alpha=0.25>(d)
          f = Conv<strides=[2,2], pads=[1,1,1,1]>(e, v)
          g = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(f)  y = LeakyRelu<alpha=0.5>(g) }""")
    rng = np.random.default_rng(3)
    for weight in model.graph.value_info:
        shape = [d.dim_value for d in weight.type.tensor_type.shape.dim]
        data = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, weight.name))
    model.graph.ClearField("value_info")
    return model


NETWORKS = {"windows": windows, "kept": network, "averages": averages}


@lru_cache
def prepared(name: str) -> Prepared:
    return prepare(NETWORKS[name]())


def programs(name, hw, images, **options):
    """For one image and for several."""
    found = (
        compile_prepared(prepared(name), hw, Options(batch=n, **options)).bundle
        for n in (1, images)
    )
    return tuple(found)


@pytest.mark.parametrize("machine", spec_names())
@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_has_the_bits_of_single_images_in_any_order(name, machine):
    """Of the second run two images are missing."""
    hw = load_hw(machine)
    one, three = programs(name, hw, 3)
    images = noise(dataclasses.replace(three, batch=4))
    expected = run(one, hw, images, capture=True)
    found = run(three, hw, images, capture=True, shuffle=5)
    assert (found.samples, found.runs) == (4, 2)
    assert found.tensors.keys() == expected.tensors.keys()
    compared = compare(one, expected, found)
    assert compared.passed, compared.first
    assert compared.tensors > len(one.groups)
    assert check(three, images, found).passed


def test_weights_are_loaded_once_for_all_images():
    hw = load_hw("opu-tiny")
    net = Net("dense", seed=1)
    x = net.flatten(net.input("x", (1, 24, 3, 3)), "flat")
    model = net.finish(net.dense(x, "dense", out=96))
    one, eight = (compile_model(model, hw, Options(batch=n)).bundle for n in (1, 8))
    weights = 24 * 3 * 3 * 96
    read = {b.batch: run(b, hw, engine="cycle").counters["dram_bytes_read"] for b in (one, eight)}
    assert weights < read[1] < 2 * weights
    assert read[8] < 2 * read[1] < 8 * weights
    assert [g.macs for g in (*one.groups, *eight.groups)] == [weights, 8 * weights]
    got = run(eight, hw, images := noise(eight), capture=True)
    assert compare(one, run(one, hw, images, capture=True), got).passed


def test_windows_that_end_at_an_image_share_the_weights_of_several_images():
    """Of the last layers of ResNet: 7x7 pixels do not keep the array as busy as loading weights."""
    hw = load_hw("opu-1024")
    shape = batched(_shape(in_channels=512, pre_pool_channels=512, rows=7, window=_SAME), 8)
    fits = [c for c in candidates(shape, hw) if isinstance(c, Fit)]
    best = min(fits, key=lambda c: c.cost.total_cycles)
    single = min((c for c in fits if c.tile.images == 1), key=lambda c: c.cost.total_cycles)
    assert best.tile.images > 1
    assert 2 * best.cost.dram_bytes < single.cost.dram_bytes


_SAME = Window(kernel=(3, 3), pads=(1, 1, 1, 1))
_HALF = Window(kernel=(2, 2), strides=(2, 2))


def _shape(*, in_channels=8, pre_pool_channels=8, rows=8, made=None, window, **more):
    made = rows if made is None else made
    return Shape(
        array=True,
        in_channels=in_channels,
        in_rows=rows,
        in_cols=rows,
        slot=64,
        window=window,
        groups=1,
        pre_pool_channels=pre_pool_channels,
        pre_pool_rows=made,
        pre_pool_cols=made,
        **{"pool": None, "out_rows": made, "out_cols": made, **more},
    )


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        (_shape(window=Window(kernel=(1, 1))), 1),
        (_shape(window=Window(kernel=(1, 3), pads=(0, 1, 0, 1))), 1),
        (_shape(made=4, window=_HALF), 2),
        (_shape(made=1, window=Window(kernel=(8, 8))), 8),
        (_shape(made=1, window=Window(kernel=(3, 8), strides=(9, 9))), 8),
        (_shape(window=Window(kernel=(1, 1)), pool=_HALF, out_rows=4, out_cols=4), 1),
        (_shape(window=_SAME), None),
        (_shape(rows=9, made=4, window=_HALF), None),
        (_shape(made=7, window=Window(kernel=(2, 2))), None),
        (_shape(made=4, window=Window(kernel=(2, 2), strides=(2, 2), dilations=(2, 2))), None),
        (_shape(rows=300, made=1, window=Window(kernel=(300, 300))), None),
        (_shape(window=Window(kernel=(1, 1)), sides=(Side(broadcast=True),)), None),
        (_shape(window=Window(kernel=(1, 1)), phased=True), None),
        (
            _shape(
                window=Window(kernel=(1, 1)),
                pool=Window(kernel=(3, 3), strides=(2, 2), pads=(1, 1, 0, 0)),
                pool_kind=PoolKind.MAX,
                out_rows=4,
                out_cols=4,
            ),
            None,
        ),
    ],
)
def test_images_are_one_map_where_no_window_sees_two(shape, stride):
    found = batched(shape, 5)
    if stride is None:
        assert found == replace(shape, images=5)
        return
    assert found.images == 1
    assert (found.in_rows, found.pre_pool_rows) == (5 * shape.in_rows, 5 * shape.pre_pool_rows)
    assert found.out_rows == 5 * shape.out_rows
    assert found.window == replace(shape.window, strides=(stride, shape.window.strides[1]))
    for row in range(found.pre_pool_rows):  # what it reads lies in its own image
        start, stop, _ = found.window.span(0, row, 1, found.in_rows)
        image = row // shape.pre_pool_rows
        assert start // shape.in_rows == (stop - 1) // shape.in_rows == image


def test_images_in_one_map_pass_no_pooling_halo_on():
    pool = Window(kernel=(2, 2))  # of two rows, all of an image: of a batch, one row is one image
    rows_and_cols = {"rows": 2, "out_rows": 1, "out_cols": 1}
    shape = _shape(window=Window(kernel=(1, 1)), pool=pool, pools_with_halo=True, **rows_and_cols)
    assert shape.halo_rows == 1
    found = batched(shape, 3)
    assert (found.out_rows, found.pool_window.strides[0]) == (3, 2)
    assert not found.stores_halo(1)
    assert not found.reads_halo(1)


def test_a_tile_is_part_of_an_image_or_several_whole_ones():
    shape = batched(_shape(rows=6, window=_SAME), 4)
    assert [images_of(shape, rows) for rows in (1, 5, 6, 12, 24)] == [1, 1, 1, 2, 4]
    assert pre_pool_rect(shape, Rect(14, 3, 0, 6))[:3] == (14, 17, 0)
    assert pre_pool_rect(shape, Rect(6, 18, 0, 6))[:3] == (6, 24, 0)
    tried = list(candidates(shape, load_hw("opu-1024")))
    fits = [c for c in tried if not isinstance(c, Refused)]
    assert len(fits) == len(tried)
    sizes = {(c.tile.images, c.tile.rows) for c in fits}
    assert {rows for images, rows in sizes if images > 1} == {6}
    assert {images for images, _ in sizes} == {1, 2, 4}


def test_a_program_file_says_how_many_images_it_takes(tmp_path):
    hw = load_hw("opu-tiny")
    one, two = programs("windows", hw, 2)
    paths = [tmp_path / "one.opu", tmp_path / "two.opu"]
    for bundle, path in zip((one, two), paths, strict=True):
        program_file.save(bundle, path)
        assert program_file.load(path).batch == bundle.batch
    seen = []
    edit_manifest(paths[0], seen.append)
    edit_manifest(paths[1], seen.append)
    assert "batch" not in seen[0], "a program for one image is what it was"
    assert [tree["schema_version"] for tree in seen] == [OLDEST_SCHEMA, 4]
    edit_manifest(paths[1], lambda tree: tree.update(batch=5))
    refuse(paths[1], "24 rows for a batch of 5")
    edit_manifest(paths[0], lambda tree: tree.update(batch=2))
    refuse(paths[0], "damaged")


def test_time_and_images_per_second_are_told_for_a_batch():
    hw = load_hw("opu-tiny")
    one, two = programs("windows", hw, 2)
    timed = run(two, hw, engine="cycle")
    text = text_of(groups_table(two, timed))
    cycles = timed.counters["cycles"]
    (line,) = (line for line in text.splitlines() if "together" in line)
    numbers = [float(n) for n in re.findall(r"[\d.]+", line)]
    assert numbers[:2] == [2, round(cycles / hw.clock_mhz / 1000, 3)]
    assert numbers[2] == pytest.approx(2e6 * hw.clock_mhz / cycles, abs=0.1)
    assert "together" not in text_of(groups_table(one, run(one, hw, engine="cycle")))


def test_the_first_difference_names_image_and_instruction():
    hw = load_hw("opu-tiny")
    _, two = programs("windows", hw, 2)
    images = noise(two)
    expected = run(two, hw, images, capture=True)
    for image, place in ((0, (0, 3, 1, 2)), (1, (1, 3, 1, 2))):
        name = next(n for n, a in expected.tensors.items() if a.shape[1:] == (18, 12, 10))
        wrong = {n: a.copy() for n, a in expected.tensors.items()}
        wrong[name][place] ^= 1
        found = compare(two, expected, dataclasses.replace(expected, tensors=wrong)).first
        assert found is not None
        assert found.index == place
        tiles = _tiles(two)
        assert tiles[found.instruction][2] // 12 == image


def _tiles(bundle):
    """Instruction -> its tile, of a program of one segment."""
    (segment,) = bundle.segments
    retired = run(bundle, load_hw("opu-tiny"), noise(bundle)).trace
    posts = sorted(r.instruction for r in retired if r.engine == "post")
    return dict(zip(posts, segment.tiles, strict=True))


def test_a_wrong_byte_of_a_bench_is_told_with_its_image():
    hw = load_hw("opu-tiny")
    _, two = programs("windows", hw, 2)
    window = np.zeros(two.window_bytes, np.uint8)
    tensor = next(t for t in two.tensors if t.shape == (1, 5, 12, 10))
    value = np.zeros((2, *tensor.shape), np.int8)
    value[1, 0, 3, 11, 9] = 1
    write_tensor(window, tensor, value)
    assert _element(tensor, int(np.flatnonzero(window)[0]), 2) == (1, 3, 11, 9)
    assert np.array_equal(read_tensor(window, tensor, 2), value)


@pytest.mark.parametrize("images", [0, -1, MOST_IMAGES + 1])
def test_a_batch_of_none_or_too_many_is_refused(images):
    with pytest.raises(UserError, match=f"1 to {MOST_IMAGES} images"):
        compile_prepared(prepared("windows"), load_hw("opu-tiny"), Options(batch=images))


def test_a_model_of_several_images_cannot_be_stacked():
    net = Net("pair", seed=0)
    model = net.finish(net.relu(net.input("x", (2, 4)), "relu"))
    with pytest.raises(UserError, match="not that of a single image"):
        compile_model(model, load_hw("opu-tiny"), Options(batch=2))


def test_a_batch_that_exceeds_the_memory_is_refused_in_one_line():
    hw = load_hw("opu-tiny")
    small = dataclasses.replace(hw, dram=dataclasses.replace(hw.dram, capacity=1 << 16))
    with pytest.raises(UserError, match="bytes of DRAM"):
        compile_prepared(prepared("windows"), small, Options(batch=64))


def test_weights_that_exceed_the_memory_are_refused_before_they_have_instructions(monkeypatch):
    monkeypatch.setattr(plan, "planned_units", None)
    hw = load_hw("opu-tiny")
    small = dataclasses.replace(hw, dram=dataclasses.replace(hw.dram, capacity=1 << 10))
    with pytest.raises(UserError, match=r"weights take \d+ bytes, opu-tiny has 1024 bytes"):
        compile_prepared(prepared("windows"), small, Options())


def test_a_batch_that_no_instruction_can_address_is_refused_in_one_line():
    net = Net("large", seed=0)
    x = net.conv(net.input("x", (1, 8, 256, 256)), "first", out=8, kernel=1)
    model = net.finish(net.global_average_pool(x, "average"))
    with pytest.raises(UserError, match="4259840 words, instructions count 4194303; run fewer"):
        compile_model(model, load_hw("opu-tiny"), Options(batch=65))


def test_inputs_of_a_batch_are_checked_as_those_of_one_image():
    hw = load_hw("opu-tiny")
    _, two = programs("windows", hw, 2)
    with pytest.raises(UserError, match=r"has shape \[2, 5, 12, 9\]"):
        run(two, hw, {"x": np.zeros((2, 5, 12, 9), np.float32)})


def test_a_damaged_batch_is_refused(tmp_path):
    path = tmp_path / "two.opu"
    program_file.save(programs("windows", load_hw("opu-tiny"), 2)[1], path)
    edit_manifest(path, lambda tree: tree["inputs"][0].update(shape=[2, 5, 6, 10]))
    with pytest.raises(ProgramError, match="not one image of a batch"):
        program_file.load(path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "size", "machine"),
    [
        ("squeezenet", 64, "opu-1024"),
        ("mobilenet_v2", 64, "opu-light"),
        ("unet", 32, "opu-1024"),
        ("efficientnet_b0", 64, "opu-light"),
    ],
)
def test_networks_of_the_zoo_have_the_same_bits_in_a_batch(name, size, machine):
    hw = load_hw(machine)
    model = prepare(zoo.build(name, image=size))
    one, three = (compile_prepared(model, hw, Options(batch=n)).bundle for n in (1, 3))
    images = noise(three)
    expected, found = (run(b, hw, images, capture=True) for b in (one, three))
    compared = compare(one, expected, found)
    assert compared.passed, compared.first
