"""Pictures as inputs: sizes and numbers by hand, mistakes named."""

import struct
import zlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from PIL import Image
from typer.testing import CliRunner

from opu_fuse import zoo
from opu_fuse.cli.main import app
from opu_fuse.errors import ModelError, UserError
from opu_fuse.pictures import (
    Channels,
    Preprocessing,
    is_pictures,
    load_pictures,
    load_preprocessing,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def saved(path, pixels, **options):
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)
    return path


def test_pixels_are_scaled_and_normalised_by_channel(tmp_path):
    pixels = np.arange(4 * 5 * 3).reshape(4, 5, 3) * 4
    path = saved(tmp_path / "x.png", pixels)
    sample = load_pictures(path, Preprocessing(mean=MEAN, std=STD))
    assert sample.shape == (1, 3, 4, 5)
    assert sample.dtype == np.float32
    for channel in range(3):
        by_hand = (pixels[..., channel] / 255 - MEAN[channel]) / STD[channel]
        np.testing.assert_allclose(sample[0, channel], by_hand, atol=1e-5)


def test_the_shorter_side_is_resized_and_the_middle_cropped(tmp_path):
    pixels = np.zeros((100, 200, 3))
    pixels[:, 100:] = 255  # black left, white right
    path = saved(tmp_path / "x.png", pixels)
    whole = load_pictures(path, Preprocessing(resize=50))
    assert whole.shape == (1, 3, 50, 100)
    middle = load_pictures(path, Preprocessing(resize=50, crop=40))
    assert np.array_equal(middle, whole[..., 5:45, 30:70])
    assert (middle[..., 0] == 0).all()
    assert (middle[..., -1] == 1).all()


def test_a_letterbox_keeps_the_proportions_and_fills_the_rest(tmp_path):
    pixels = np.zeros((100, 200, 3))
    pixels[:, 100:] = 250  # dark left, light right
    path = saved(tmp_path / "x.png", pixels)
    sample = load_pictures(path, Preprocessing(letterbox=64, range=255))
    assert sample.shape == (1, 3, 64, 64)
    assert (sample[..., :16, :] == 114).all()
    assert (sample[..., 48:, :] == 114).all()
    assert (sample[..., 16:48, :31] == 0).all()
    assert (sample[..., 16:48, 33:] == 250).all()
    other = Preprocessing(letterbox=(40, 61), range=255, fill=7)  # 30 x 61, margins 5 and 5
    sample = load_pictures(path, other)
    assert sample.shape == (1, 3, 40, 61)
    rows = np.flatnonzero((sample[0, 0] != 7).all(axis=1))
    assert (rows.min(), rows.max()) == (5, 34)
    thin = load_pictures(saved(tmp_path / "y.png", np.zeros((1000, 1))), Preprocessing(letterbox=8))
    assert np.count_nonzero(thin[0, 0] == 0) == 8, "a column remains of it"


def test_other_orders_types_and_grey(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 3))
    path = saved(tmp_path / "x.png", pixels)
    bgr = Preprocessing(channels=Channels.BGR, layout="nhwc", dtype="uint8")
    assert np.array_equal(load_pictures(path, bgr)[0], pixels[..., ::-1])
    grey = load_pictures(
        saved(tmp_path / "y.png", pixels[..., 0]), Preprocessing(channels=Channels.GREY)
    )
    np.testing.assert_allclose(grey[0, 0], pixels[..., 0] / 255, atol=1e-6)
    assert load_pictures(path, Preprocessing(range=255)).max() == pixels.max()


def test_a_photograph_on_its_side_is_turned_as_viewers_do(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees
    path = saved(tmp_path / "x.jpg", np.zeros((8, 16, 3)), exif=exif)
    assert load_pictures(path, Preprocessing()).shape == (1, 3, 16, 8)


def test_a_folder_gives_its_pictures_in_the_order_of_names(tmp_path):
    for name, value in (("b.png", 20), ("a.PNG", 10), ("c.jpeg", 30), ("notes.txt", None)):
        if value is None:
            (tmp_path / name).write_text("no picture")
        else:
            saved(tmp_path / name, np.full((3, 3, 3), value))
    assert load_pictures(tmp_path, Preprocessing(range=255))[:, 0, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sze: 3", "sze: there is no such key"),
        ("crop: 0", "crop"),
        ("mean: [1, 2]", "mean has 2 numbers for 3 channels"),
        ("std: [0]", "std"),
        ("{dtype: uint8, mean: [0.5]}", "leave out mean and std"),
        ("{letterbox: 8, crop: 8}", "leave out resize and crop"),
        ("{letterbox: 8, fill: 256}", "fill"),
    ],
)
def test_mistakes_in_the_file_name_the_key(text, said, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load_preprocessing(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_damaged_missing_and_small_pictures_are_named(tmp_path):
    damaged = tmp_path / "x.jpg"
    damaged.write_bytes(b"\xff\xd8no picture")
    with pytest.raises(ModelError, match=r"x\.jpg: is no picture"):
        load_pictures(damaged, Preprocessing())
    with pytest.raises(ModelError, match="is no picture or folder of pictures"):
        load_pictures(tmp_path / "nowhere.png", Preprocessing())
    small = saved(tmp_path / "s.png", np.zeros((3, 3, 3)))
    with pytest.raises(ModelError, match=r"s\.png: has 3 x 3 pixels, `crop` takes 8 x 8"):
        load_pictures(small, Preprocessing(crop=8))


def test_pictures_of_too_many_pixels_or_bits_are_refused_before_they_are_read(tmp_path):
    deep = tmp_path / "deep.png"
    Image.fromarray(np.full((3, 3), 1 << 12, np.uint16)).save(deep)
    with pytest.raises(ModelError, match=r"deep\.png: has 16 bits for each pixel"):
        load_pictures(deep, Preprocessing())
    long = saved(tmp_path / "long.png", np.zeros((1, 60_000)))
    with pytest.raises(ModelError, match="has 256 x 15360000 pixels after `resize`"):
        load_pictures(long, Preprocessing(resize=256))
    for side, said in ((10_000, "has 10000 x 10000 pixels"), (14_000, "has too many pixels")):
        large = saved(tmp_path / "large.png", np.zeros((1, 1)))
        data = bytearray(large.read_bytes())
        data[16:24] = struct.pack(">2I", side, side)  # of its header, which has a checksum
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
        large.write_bytes(data)
        with pytest.raises(ModelError, match=said):
            load_pictures(large, Preprocessing(resize=256))


def test_a_folder_of_arrays_may_have_pictures_of_them(tmp_path):
    saved(tmp_path / "shown.png", np.zeros((3, 3, 3)))
    assert is_pictures(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert not is_pictures(tmp_path)


def test_compile_and_run_read_pictures(tmp_path):
    ir.save(zoo.build("tiny_residual"), tmp_path / "net.onnx")
    (value,) = onnx.load(tmp_path / "net.onnx").graph.input
    rows, cols = (d.dim_value for d in value.type.tensor_type.shape.dim[2:])
    rng = np.random.default_rng(1)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for n in range(2):
        saved(folder / f"{n}.png", rng.integers(0, 256, (40, 50, 3)))
    settings = tmp_path / "p.yaml"
    settings.write_text(f"resize: [{rows}, {cols}]\nmean: [0.5]\nstd: [0.25]\n")

    def command(*arguments: object) -> None:
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        assert done.exit_code == 0, done.output

    pictures = ("--pictures", settings)
    program = tmp_path / "net.opu"
    options = ("--hw", "opu-tiny", "-o", program, "--calibration", folder)
    command("compile", tmp_path / "net.onnx", *options, *pictures)
    command("run", program, "--input", folder, *pictures, "--output", tmp_path / "shown")
    command(
        *("run", program, "--input", f"input={folder}", *pictures),
        *("--output", tmp_path / "named"),
    )
    np.save(tmp_path / "x.npy", load_pictures(folder, settings))
    command(
        *("run", program, "--input", f"input={tmp_path / 'x.npy'}"),
        *("--output", tmp_path / "expected"),
    )
    (name,) = (p.name for p in (tmp_path / "expected").iterdir())
    shown = np.load(tmp_path / "shown" / name)
    assert shown.shape == (2, 10)
    for folder in ("expected", "named"):
        assert np.array_equal(shown, np.load(tmp_path / folder / name))


def test_settings_without_pictures_and_pictures_without_settings_are_refused(tmp_path):
    ir.save(zoo.build("tiny_residual"), tmp_path / "net.onnx")
    saved(tmp_path / "x.png", np.zeros((3, 3, 3)))
    (tmp_path / "p.yaml").write_text("crop: 2")
    compile_ = ["compile", str(tmp_path / "net.onnx"), "--hw", "opu-tiny", "-o", "never.opu"]
    alone = CliRunner().invoke(app, [*compile_, "--pictures", str(tmp_path / "p.yaml")])
    assert alone.exit_code != 0
    assert "no input is a picture" in alone.output
    without = CliRunner().invoke(app, [*compile_, "--calibration", str(tmp_path / "x.png")])
    assert "give --pictures P.yaml" in str(without.exception)
