"""Calibration data in every accepted form, and the message for every other one."""

import logging
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse import zoo
from opu_fuse.errors import ModelError, UserError
from opu_fuse.frontend.calibration import samples
from opu_fuse.frontend.prepare import prepare

SHAPE = (1, 3, 12, 12)


@pytest.fixture
def model() -> ir.Model:
    return zoo.build("tiny_residual")


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, *SHAPE), np.float32)


def test_without_data_noise_stands_in_with_a_warning(
    model: ir.Model, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        prepared = prepare(model)
    (warning,) = prepared.warnings
    assert warning.startswith("no calibration data: ")
    assert warning.endswith("pass real inputs for real accuracy (calibration)")
    assert caplog.messages == [warning]


def test_given_data_needs_no_warning(model: ir.Model):
    assert prepare(model, calibration={"input": images(2)}).warnings == ()


def test_a_folder_of_arrays_is_read_in_name_order(model: ir.Model, tmp_path: Path):
    data = images(3)
    for name, image in zip(("b", "a", "c"), data, strict=True):
        np.save(tmp_path / f"{name}.npy", image)
    found, _ = samples(model, tmp_path)
    assert [s["input"].tolist() for s in found] == [data[i].tolist() for i in (1, 0, 2)]


@pytest.mark.parametrize("stack", [(4, 3, 12, 12), (4, 1, 3, 12, 12)])
def test_samples_are_stacked_along_the_first_axis(
    model: ir.Model, tmp_path: Path, stack: tuple[int, ...]
):
    data = images(4)
    np.savez(tmp_path / "data.npz", input=data.reshape(stack))
    found, _ = samples(model, tmp_path / "data.npz")
    assert np.array_equal(np.stack([s["input"] for s in found]), data)


def test_numbers_of_other_types_are_converted(model: ir.Model):
    (sample,), _ = samples(model, {"input": np.full(SHAPE, 7, np.uint8)})
    assert sample["input"].dtype == np.float32
    assert np.all(sample["input"] == 7.0)


def test_images_with_channels_last_are_turned_with_a_warning(model: ir.Model):
    data = np.random.default_rng(0).normal(size=(2, *SHAPE[1:])).astype(np.float32)
    found, (warning,) = samples(model, {"input": np.moveaxis(data, 1, -1)})
    assert np.array_equal(np.concatenate([s["input"] for s in found]), data)
    assert "channels last, 2x12x12x3: taken as 2x3x12x12, the last axis moved" in warning


def test_an_array_alone_is_for_the_one_input(model: ir.Model):
    data = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    (sample,), told = samples(model, data)
    assert np.array_equal(sample["input"], data)
    assert told == ()


@pytest.mark.parametrize(
    ("data", "doubts"),
    [
        (np.zeros(SHAPE, np.uint8), ["the data are uint8", "is 0 everywhere"]),
        (np.full(SHAPE, 0.5, np.float32), ["is 0.5 everywhere"]),
        (np.linspace(-3, 60000, 432).reshape(SHAPE), ["goes from -3 to 60000, images reach 255"]),
        (np.linspace(0, 255, 432).reshape(SHAPE), []),
    ],
)
def test_what_real_inputs_hardly_look_like_is_warned_of(
    model: ir.Model, data: np.ndarray, doubts: list[str]
):
    _, told = samples(model, {"input": data})
    assert [doubt in text for doubt, text in zip(doubts, told, strict=True)] == [True] * len(doubts)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"image": np.zeros(SHAPE)}, r"expected arrays named \['input'\], got \['image'\]"),
        ({"input": np.zeros((3, 12, 13))}, r"expects shape 1x3x12x12 .*, got 3x12x13; its axes"),
        ({"input": np.zeros((5, 3, 10, 12))}, r"expects shape 1x3x12x12 .*, got 5x3x10x12"),
        ({"input": np.zeros((0, *SHAPE))}, r"got 0x1x3x12x12"),
        ({"input": np.full(SHAPE, np.nan)}, r"input 'input' holds NaN or infinity; clean the data"),
        ({"input": np.full(SHAPE, "a")}, r"input 'input' expects float32, got <U1; convert"),
    ],
)
def test_data_that_does_not_fit_says_what_was_expected(
    model: ir.Model, data: dict[str, np.ndarray], message: str
):
    with pytest.raises(ModelError, match=message):
        prepare(model, calibration=data)


def test_a_missing_folder(model: ir.Model, tmp_path: Path):
    with pytest.raises(ModelError, match=r"nowhere: there is no such file or folder; check"):
        prepare(model, calibration=tmp_path / "nowhere")


def test_a_folder_without_arrays(model: ir.Model, tmp_path: Path):
    (tmp_path / "readme.txt").write_text("nothing here")
    with pytest.raises(ModelError, match=re.escape("holds no .npy or .npz files")):
        prepare(model, calibration=tmp_path)


@pytest.mark.parametrize("name", ["x.npz", "x.npy"])
def test_a_file_that_is_no_array(model: ir.Model, tmp_path: Path, name: str):
    (tmp_path / name).write_text("no array")
    with pytest.raises(ModelError, match=re.escape("is no numpy file (.npy or .npz)")):
        prepare(model, calibration=tmp_path / name)


def test_one_array_cannot_feed_two_inputs(
    tmp_path: Path, onnx_text: Callable[..., onnx.ModelProto]
):
    two = onnx_text("agraph (float[1, 4] a, float[1, 4] b) => (float[1, 4] y) { y = Add (a, b) }")
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    with pytest.raises(ModelError, match=r"one array cannot feed 2 inputs; .*'a', 'b'"):
        prepare(two, calibration=tmp_path)
    with pytest.raises(ModelError, match="different numbers of samples"):
        prepare(two, calibration={"a": np.zeros((2, 1, 4)), "b": np.zeros((3, 1, 4))})


def test_samples_in_a_list_are_those_of_an_array(model: ir.Model):
    stack = images(3)[:, 0]
    wanted, _ = samples(model, {"input": stack})
    for given in ([*stack], [*stack[:, None]], (stack[:1], stack[1:]), stack):
        found, warnings = samples(model, given)
        assert not warnings
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one["input"], other["input"])


def test_a_list_of_channels_last_images_is_transposed(model: ir.Model):
    stack = images(3)[:, 0]
    found, (warning,) = samples(model, [*stack.transpose(0, 2, 3, 1)], "data")
    assert warning.startswith("data: ")
    np.testing.assert_array_equal([sample["input"][0] for sample in found], stack)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "data: is int, not an array or arrays by name; give a dictionary of arrays: 'input'"),
        ([], "data: holds nothing, not arrays; give numpy arrays, one a sample"),
        (["x.npy"], "data: holds str, not arrays; give numpy arrays, one a sample"),
        ([np.zeros((3, 4, 4)), np.zeros((3, 5, 5))], "data: holds arrays of shapes [3, 4, 4], [3"),
    ],
)
def test_what_is_no_array_is_refused_by_the_name_of_the_argument(model, given, message):
    with pytest.raises(ModelError) as caught:
        samples(model, given, "data")
    assert str(caught.value).startswith(message)


def test_given_integers_are_taken_as_they_are(onnx_text: Callable[..., onnx.ModelProto]):
    text = """
    agraph (int32[1, 4] a) => (float[1, 4] y) {
        f = Cast <to = 1> (a)
        y = Relu (f)
    }
    """
    prepared = prepare(onnx_text(text), calibration={"a": np.asarray([[1, 2, 3, 4]], np.int32)})
    assert [n.op_type for n in prepared.canonical.graph] == ["Cast", "Relu"]
    with pytest.raises(ModelError, match="input 'a' expects int32, got int64; convert"):
        prepare(onnx_text(text), calibration={"a": np.asarray([[1, 2, 3, 4]], np.int64)})


def test_a_choice_of_scales_that_does_not_exist(model: ir.Model):
    text = "scales 'exact': there is no such choice; use one of pow2, pow2-asymmetric, free"
    with pytest.raises(UserError, match=text):
        prepare(model, scales="exact")


def _npz(path: Path) -> bytes:
    np.savez_compressed(path, input=images(2))
    return path.read_bytes()


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "cut at its end": lambda data: data[:-10],
    "another byte": lambda data: data[:200] + bytes([data[200] ^ 255]) + data[201:],
    # bit 0 of the flags of the member, and of its entry in the directory
    "encrypted": lambda data: _member_field(data, local=6, central=8, value=1),
    "packed in an unknown way": lambda data: _member_field(data, local=8, central=10, value=77),
}


def _member_field(data: bytes, *, local: int, central: int, value: int) -> bytes:
    place = data.rindex(b"PK\x01\x02")
    changed = bytearray(data)
    changed[local], changed[place + central] = value, value
    return bytes(changed)


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_archive(model: ir.Model, tmp_path: Path, kind: str):
    path = tmp_path / "x.npz"
    path.write_bytes(DAMAGED[kind](_npz(path)))
    with pytest.raises(ModelError, match=r"x\.npz: is (no numpy file|damaged).*; write it"):
        prepare(model, calibration=path)


def test_an_archive_of_other_things(model: ir.Model, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("input", "no array")
    with pytest.raises(ModelError, match="input 'input' expects float32, got bytes; convert"):
        prepare(model, calibration=tmp_path / "x.npz")


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 40, 1 << 40), (-1,)])
def test_an_array_that_says_it_is_larger_than_the_file(
    model: ir.Model, tmp_path: Path, shape: tuple[int, ...]
):
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(ModelError, match="is no numpy file"):
        prepare(model, calibration=tmp_path / "x.npy")


def test_numbers_too_large_for_float32(model: ir.Model):
    with pytest.raises(ModelError, match="holds NaN or infinity"):
        prepare(model, calibration={"input": np.full(SHAPE, 1e300)})
