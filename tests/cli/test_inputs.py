"""Arrays and numbers that users give: what is none is named, in one line."""

import io
import warnings

import numpy as np
import pytest

from tests.cli.test_messages import refused


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def archive(*, encrypted=False, **arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    data = bytearray(buffer.getvalue())
    if encrypted:  # the flag, in both headers of the only member
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            data[data.index(mark) + place] |= 1
    return bytes(data)


IMAGE = np.zeros((1, 3, 12, 12), np.float32)
OBJECTS = np.array([{"a": 1}, None], dtype=object)
FILES = {
    "empty": (b"", ["cannot be read"]),
    "cut in the header": (npy(IMAGE)[:40], ["cannot be read"]),
    "cut in the data": (npy(IMAGE)[:-7], ["cannot be read"]),
    "foreign": (b"\xff\xd8\xff\xe0" * 30, ["cannot be read: it holds no array; give a .npy file"]),
    "a text": (b"1.0 2.0 3.0\n", ["cannot be read"]),
    "objects": (npy(OBJECTS, allow_pickle=True), ["cannot be read"]),
    "header of nonsense": (b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((", ["cannot be read"]),
    "archive cut": (archive(x=IMAGE)[:90], ["cannot be read"]),
    "archive encrypted": (archive(encrypted=True, x=IMAGE), ["cannot be read", "encrypted"]),
    "archive of two": (archive(x=IMAGE, y=IMAGE), ["archive of 2 arrays", "an input is one"]),
    "archive of none": (archive(), ["archive of 0 arrays"]),
    "other type": (npy(IMAGE.astype(np.float64)), ["float64", "float32"]),
    "other shape": (npy(IMAGE[:, :2]), ["[1, 2, 12, 12]", "[1, 3, 12, 12]"]),
    "a scalar": (npy(np.float32(1)), ["shape []"]),
    "nothing in it": (npy(IMAGE[:0]), ["[0, 3, 12, 12]"]),
    "names of columns": (npy(np.zeros(3, [("a", "f4")])), ["expected float32"]),
    "larger than memory": (
        npy(IMAGE).replace(b"(1, 3, 12, 12), }  ", b"(9, 99999999999),}"),
        ["cannot be read"],
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_arrays_that_are_none_are_refused_in_one_line(case, opu_fuse, program_file, tmp_path):
    data, words = FILES[case]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(opu_fuse("run", program_file, "--input", f"input={path}"), *words)


@pytest.mark.parametrize("place", ["", ".", "missing.npy", "/dev/zero"])
def test_places_without_an_array_are_refused(place, opu_fuse, program_file):
    refused(opu_fuse("run", program_file, "--input", f"input={place}"), "no such file")


def test_an_archive_of_one_array_is_as_good_as_the_array(opu_fuse, program_file, tmp_path):
    (tmp_path / "x.npz").write_bytes(archive(x=IMAGE))
    assert opu_fuse("run", program_file, "--input", f"input={tmp_path / 'x.npz'}").code == 0


def test_an_archive_names_its_arrays_as_the_inputs(opu_fuse, program_file, tmp_path):
    (tmp_path / "x.npz").write_bytes(archive(input=IMAGE))
    assert opu_fuse("run", program_file, "--input", tmp_path / "x.npz").code == 0
    (tmp_path / "y.npz").write_bytes(archive(image=IMAGE))
    refused(opu_fuse("run", program_file, "--input", tmp_path / "y.npz"), "input image", "no input")
    called = opu_fuse("run", program_file, "--input", tmp_path / "x.npz", "--input", "input=x.npy")
    refused(called, "x.npy", "no such file")
    refused(opu_fuse("run", program_file, "--input", tmp_path / "x.npy"), "FILE.npz")


def test_nan_stands_for_nothing(opu_fuse, program_file, tmp_path):
    np.save(tmp_path / "x.npy", np.full_like(IMAGE, np.nan))
    called = opu_fuse("run", program_file, "--input", f"input={tmp_path / 'x.npy'}")
    refused(called, "input", "holds NaN")


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3e38])
def test_what_is_too_large_saturates_without_a_warning(value, opu_fuse, program_file, tmp_path):
    np.save(tmp_path / "x.npy", np.full_like(IMAGE, value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called = opu_fuse("run", program_file, "--input", f"input={tmp_path / 'x.npy'}")
    assert (called.code, called.err) == (0, "")


WRONG_USAGE = [
    ("run", "--shuffle", "-1"),
    ("run", "--shuffle", "x"),
    *(("run", "--engine", "cycle", "--latency", n) for n in ("-1", "65536", "1e3", str(1 << 70))),
    *(
        ("run", "--engine", "cycle", "--bytes-per-cycle", n)
        for n in ("0", "-1", "inf", "-inf", "nan", "1e300", "0.001", "")
    ),
    *(("zoo", "export", "tiny_odd", "-o", "x.onnx", "--seed", n) for n in ("-1", "0.5")),
    *(("zoo", "export", "tiny_odd", "-o", "x.onnx", "--image", n) for n in ("0", "65536", "x")),
]


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=" ".join)
def test_numbers_out_of_their_range_are_wrong_usage(
    arguments, opu_fuse, program_file, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    verb, *rest = arguments
    called = opu_fuse(verb, *([program_file] if verb == "run" else []), *rest)
    assert called.code == 2, called
    assert "Traceback" not in called.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [("--latency", "65535"), ("--bytes-per-cycle", "0.01")])
def test_the_slowest_memory_comes_to_its_end(options, opu_fuse, program_file):
    assert opu_fuse("run", program_file, "--engine", "cycle", *options).code == 0
