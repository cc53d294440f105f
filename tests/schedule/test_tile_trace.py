"""What `--explain-tiles` says, on layers so small that every figure is worked out by hand."""

import dataclasses
from math import prod

import pytest
from msgspec.structs import replace

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.plan_text import plan_lines
from opu_fuse.schedule.tile_choice import StackTrial
from opu_fuse.schedule.tile_trace import explain_tiles
from opu_fuse.zoo.builder import Net
from tests.schedule.planned import stacks
from tests.schedule.test_coschedule import branches
from tests.schedule.test_fused_stacks import TINY, slow

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
ALONE = "  in no fused stack: none with its neighbours fits, gains or was asked for"


def told(found, hw, name):
    return [*explain_tiles(found.dfg, found.partition, found.plan, hw, name)]


def one_conv(rows, cols):
    """Eight channels of eight, 1x1: a weight row of 32 bytes for each half of the outputs."""
    net = Net("one", seed=3)
    return net.finish(net.conv(net.input("x", (1, 8, rows, cols)), "only", out=8, kernel=1))


TIMED = "; fastest with the layers before and after it, timed tile by tile"


def test_every_cut_is_told_with_its_cycles_the_cheapest_first():
    """2x2 pixels, memory moves a byte a cycle. A tile takes the array 24 cycles, and each of two
    weight rows one a pixel, but no less than the 4 in which it is read. Memory: 32 bytes in, 32
    out, weights 64, for every tile again unless they stay. In all the largest of these and of half
    of array, post and 60 cycles a tile, the first tile's features, one tile's post, a fifth of
    memory: 128 + 32 + 4 + 25.6 for one tile, (128 + 4 + 240) / 2 + 8 + 1 + 25.6 for four.
    """
    hw = slow(TINY, 1)
    assert told(compile_model(one_conv(2, 2), hw), hw, "only") == [
        "only: 8 cuts fit, 0 do not (rows x columns x channel blocks of a tile)",
        "  taken 2x2x1, mode 8x4x1, features stay: 190 cycles (array 32, post 4, memory 128)"
        + TIMED,
        "  fits 1x2x1, mode 8x4x1, weights stay: 172 cycles (array 64, post 4, memory 128)",
        "  fits 2x1x1, mode 8x4x1, weights stay: 172 cycles (array 64, post 4, memory 128)",
        "  fits 2x2x1, mode 8x4x1, features stay: 190 cycles (array 32, post 4, memory 128)",
        "  fits 2x2x1, mode 8x4x1, weights stay: 190 cycles (array 32, post 4, memory 128)",
        "  fits 1x1x1, mode 8x4x1, weights stay: 221 cycles (array 128, post 4, memory 128)",
        "  fits 1x2x1, mode 8x4x1, features stay: 248 cycles (array 64, post 4, memory 192)",
        "  fits 2x1x1, mode 8x4x1, features stay: 248 cycles (array 64, post 4, memory 192)",
        "  fits 1x1x1, mode 8x4x1, features stay: 393 cycles (array 128, post 4, memory 320)",
        ALONE,
    ]


@pytest.mark.parametrize(
    ("bank", "refused", "more"),
    [
        (3, ["2x2", "1x4", "1x5", "2x3", "2x4", "2x5", "1x10", "2x10"], []),
        (2, ["1x3", "2x2", "1x4", "1x5", "2x3", "2x4", "2x5", "1x10"], ["  ... and 1 more"]),
    ],
)
def test_what_does_not_fit_is_told_with_the_bank_that_it_overflows(bank, refused, more):
    """A partial-sum word a pixel; the one that misses least comes first, of equals the one with
    more rows.
    """
    psum = dataclasses.replace(TINY.buffers.psum, words=2 * bank, banks=2)
    hw = dataclasses.replace(TINY, buffers=dataclasses.replace(TINY.buffers, psum=psum))
    heading, *lines = told(compile_model(one_conv(2, 10), hw), hw, "only")
    assert heading.startswith(f"only: 6 cuts fit, {8 + len(more)} do not (")
    assert [line.split(" ")[2] for line in lines[:6]] == ["taken", *["fits"] * 5]
    needs = [(size, int(size[0]) * int(size[2:])) for size in refused]
    assert lines[6:] == [
        *(
            f"  refused {size}x1: needs {words} words of the psum buffer, a bank holds {bank}"
            for size, words in needs
        ),
        *more,
        ALONE,
    ]


def test_of_many_cuts_eight_are_listed_and_the_others_counted():
    """3 heights, 2 widths, 2 orders."""
    net = Net("one", seed=3)
    model = net.finish(net.conv(net.input("x", (1, 8, 4, 2)), "only", out=8, kernel=1))
    heading, *lines = told(compile_model(model, TINY), TINY, "only")
    assert heading.startswith("only: 12 cuts fit, 0 do not (")
    assert [line.split(" ")[2] for line in lines[:8]] == ["taken", *["fits"] * 7]
    assert lines[8:] == ["  ... and 4 more", ALONE]


def pool_of_a_pixel_column():
    net = Net("pool", seed=3)
    x = net.input("x", (1, 8, 2, 1))
    return net.finish(net.max_pool(x, "only", kernel=3, stride=1, pads=1))


@pytest.mark.usefixtures("closed_form_tiles")
def test_several_images_are_told_and_what_has_no_array_names_no_mode():
    """3 images of 2 words. The array passes an image on in a cycle a word and 24 more; the post
    chain looks at 3x3 places for each pixel. 48 bytes come and 48 go; a tile of one row needs both
    words of an image, and two tiles of two images are counted as four images.
    """
    found = compile_model(pool_of_a_pixel_column(), TINY, Options(batch=3))
    assert told(found, TINY, "only") == [
        "only: 4 cuts fit, 0 do not (rows x columns x channel blocks of a tile)",
        "  taken 3 images of 2x1x1: 158 cycles (array 78, post 54, memory 12)",
        "  fits 2x1x1: 178 cycles (array 78, post 54, memory 12)",
        "  fits 2 images of 2x1x1: 191 cycles (array 104, post 72, memory 14)",
        "  fits 1x1x1: 300 cycles (array 156, post 54, memory 18)",
        ALONE,
    ]


@pytest.mark.usefixtures("closed_form_tiles")
def test_a_plan_as_text_tells_several_images_too():
    """Of 64 outputs their weights are the most to load: three blocks of eight for all images."""
    net = Net("images", seed=3)
    x = net.input("x", (1, 8, 2, 1))
    model = net.finish(net.conv(x, "only", out=64, kernel=3, pads=1))
    found = compile_model(model, TINY, Options(batch=3))
    text = "3 images of 2x1x3"
    assert told(found, TINY, "only")[1].startswith(f"  taken {text}, ")
    (tiles,) = (line for line in plan_lines(found.dfg, found.plan) if "tiles: " in line)
    assert tiles.strip().startswith(f"tiles: 3 of {text}, ")


def test_a_companion_has_the_largest_cut_and_says_beside_whom():
    found = compile_model(branches(8, 10), TINY)
    beside = "  it runs between the tiles of wide, hence the largest cut"
    cuts, sizes = {}, {}
    for name in ("stem", "wide", "pool"):
        lines = told(found, TINY, name)
        assert (beside in lines) == (name == "pool")
        cuts[name] = [line.split()[1].strip(":,") for line in lines if " cycles (" in line]
        sizes[name] = [prod(map(int, cut.split("x"))) for cut in cuts[name]]
        assert lines[1].startswith("  taken ")
    assert sizes["pool"] == sorted(sizes["pool"], reverse=True)
    assert sizes["wide"] != sorted(sizes["wide"], reverse=True)


def chain_and_one():
    """Three layers, each of which reads the one before, and one beside them. The last of the three
    makes one row of two.
    """
    net = Net("chain", seed=3)
    x = net.input("x", (1, 8, 8, 3))
    y = net.conv(net.conv(x, "first", out=8, kernel=1), "second", out=8, kernel=1)
    y = net.conv(y, "last", out=8, kernel=(2, 1), stride=2)
    return net.finish(y, other=net.conv(x, "beside", out=8, kernel=1))


def test_a_layer_of_a_cascade_is_told_its_strips_and_one_outside_is_not():
    """Three maps between the layers and in front of them, in rings of four rows of three words: two
    are read, two come.
    """
    found = compile_model(chain_and_one(), TINY, Options(cascades="always"))
    together = (
        "  in a fused stack: first, second, last (as asked for); its last layer computes 1 rows "
        "at a time, line buffers take 36 feature words"
    )
    for name, rows, cols in (("first", 2, 3), ("second", 2, 3), ("last", 1, 2)):
        _, strips, *others, last = told(found, TINY, name)
        size = f"{rows}x{cols}x1"
        assert strips.startswith(f"  taken for a fused stack {size}, mode 8x4x1, features stay: ")
        assert [line.split()[0] for line in others] == [*["fits"] * 8, "..."]
        assert last == together
    _, best, *_, last = told(found, TINY, "beside")
    assert best.startswith("  taken 8x3x1, ")
    assert last == ALONE


def test_every_cascade_that_was_tried_in_vain_is_told_with_both_figures():
    found = compile_model(chain_and_one(), TINY, Options(cascades="always"))
    (stack,) = stacks(found.plan)

    def tried(*groups, chosen=False):
        return StackTrial(
            fused=replace(stack, groups=groups),
            chosen=chosen,
            merit=0.0,
            cycles_alone=100 * groups[-1],
            cycles=100 * groups[-1] + 1,
            bytes_alone=30,
            bytes=20,
        )

    trials = (tried(0, 1), tried(1, 2), tried(1, 3, chosen=True))
    found = compile_model(chain_and_one(), TINY, Options(cascades="never"))
    found = dataclasses.replace(found, plan=replace(found.plan, stack_trials=trials))
    alone = {
        name: "  alone, not in a fused stack of " + text
        for name, text in (
            ("first", "first, second: 101 cycles and 20 bytes, one after the other 100 and 30"),
            ("last", "second, last: 201 cycles and 20 bytes, one after the other 200 and 30"),
        )
    }
    assert told(found, TINY, "first")[-2:] == ["  ... and 12 more", alone["first"]]
    assert told(found, TINY, "second")[-3:] == ["  ... and 12 more", alone["first"], alone["last"]]
    assert told(found, TINY, "last")[-2:] == ["  ... and 4 more", alone["last"]]
    assert told(found, TINY, "beside")[-2:] == ["  ... and 12 more", ALONE]


def test_what_has_no_tiles_says_whether_it_is_layout_or_runs_on_the_host():
    """Maps that lie one behind the other are a concatenation; opu-tiny has no table for a
    Sigmoid.
    """
    net = Net("moved", seed=3)
    x, y = (net.input(name, (1, 8, 4, 3)) for name in "xy")
    joined = net.concat([net.conv(x, "first", out=8, kernel=1), y], "joined")
    model = net.finish(joined, other=net.sigmoid(y, "squash"))
    light = load_hw("opu-light")
    laid = compile_model(model, light)
    assert told(laid, light, "joined") == ["joined is a matter of layout: it has no tiles"]
    assert told(compile_model(model, TINY), TINY, "squash") == [
        "squash runs on the host: it has no tiles"
    ]
    heading, *_ = told(laid, light, "squash")
    assert heading.startswith("squash: ")
