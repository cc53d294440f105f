"""Program files: the same bytes every time, back as they were, refused when anything is wrong."""

import hashlib
import json
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest

from opu_fuse.bundle import file as program_file
from opu_fuse.bundle.check import check_bundle
from opu_fuse.bundle.file import load, save
from opu_fuse.bundle.listing import program_listing
from opu_fuse.bundle.program import HostSegment
from opu_fuse.errors import InternalError, ProgramError
from opu_fuse.hw.isa.assembly import assemble
from opu_fuse.hw.isa.encoding import encode
from tests.bundle.sample import HW, host_kernel, sample_bundle


def assert_equal(a, b):
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        assert np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y, f.name


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "sample.opu"
    save(sample_bundle(), path)
    return path


def rewrite(path, change):
    """Write the archive again with changed members: name -> bytes (None removes)."""
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def edit_manifest(path, change):
    def edit(members):
        tree = json.loads(members["manifest.json"])
        change(tree)
        members["manifest.json"] = json.dumps(tree).encode()

    rewrite(path, edit)


def refuse(path, *words):
    with pytest.raises(ProgramError) as error:
        load(path)
    text = str(error.value)
    assert "\n" not in text
    assert str(path) in text
    for word in words:
        assert word in text, text


def test_a_bundle_comes_back_as_it_was(path):
    assert_equal(load(path), sample_bundle())


def test_the_same_bundle_gives_the_same_bytes_however_often_it_travels(path, tmp_path):
    again = tmp_path / "again.opu"
    save(load(path), again)
    assert again.read_bytes() == path.read_bytes()


def test_members_are_sorted_stored_and_without_time(path):
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    assert [i.filename for i in infos] == sorted(i.filename for i in infos)
    assert {i.compress_type for i in infos} == {zipfile.ZIP_STORED}
    assert {i.date_time for i in infos} == {(1980, 1, 1, 0, 0, 0)}


def test_the_listing_assembles_to_the_program(path):
    with zipfile.ZipFile(path) as archive:
        text = archive.read("program.asm").decode()
        words = np.frombuffer(archive.read("program.bin"), "<u4")
    assert "# group 0 conv: conv (conv on ipa), relu (relu on compare)" in text
    assert np.array_equal(encode(assemble(text, spec=HW)), words)


def test_the_listing_says_what_the_host_runs_and_what_kept_it_apart():
    text = program_listing(sample_bundle(), HW)
    assert text.endswith(
        "# segment 1: host\n"
        "#   softmax (Softmax): no module of this machine runs it\n"
        "#   host/000.0.kernel.json: between int8 and floats\n"
        "#   host/000.1.onnx: softmax (Softmax: kernels have no such operator)\n"
        "#   dequantise not fused into softmax: softmax is no element-wise operator\n"
    )


def test_a_file_that_cannot_be_finished_leaves_the_old_one_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(program_file.Path, "replace", full)
    with pytest.raises(ProgramError, match=r"cannot be written \(No space left on device\)"):
        save(sample_bundle(seed=1), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ProgramError, match="cannot be written"):
        save(sample_bundle(), tmp_path / "none" / "x.opu")


def test_a_missing_file_is_named(tmp_path):
    refuse(tmp_path / "none.opu", "no such file")


def test_a_folder_is_no_program(tmp_path):
    refuse(tmp_path, "cannot be read")


def test_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "photo.opu"
    path.write_bytes(b"\xff\xd8\xff\xe0" * 100)
    refuse(path, "no complete program file")


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "empty.opu"
    path.write_bytes(b"")
    refuse(path, "no complete program file")


def test_a_foreign_zip_is_refused(tmp_path):
    path = tmp_path / "other.opu"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    refuse(path, "is a ZIP without manifest.json")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    refuse(path, "no complete program file")


def test_no_flipped_byte_gets_through(path, rng):
    """A file with a flipped byte is refused in one line, or the byte does not matter."""
    good, whole = path.read_bytes(), load(path)
    refused = 0
    for at in rng.choice(len(good), 150, replace=False):
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        try:
            found = load(path)
        except ProgramError:
            refused += 1
            refuse(path)
        else:
            assert_equal(found, whole)
    assert refused > 120


def test_a_changed_member_is_noticed_although_the_archive_is_sound(path):
    def change(members):
        data = bytearray(members["dram.bin"])
        data[0] ^= 1
        members["dram.bin"] = bytes(data)

    rewrite(path, change)
    refuse(path, "dram.bin is not what manifest.json says")


@pytest.mark.parametrize("name", ["dram.bin", "program.bin", "spec.yaml", "host/000.1.onnx"])
def test_a_missing_member_is_named(path, name):
    rewrite(path, lambda members: members.pop(name))
    refuse(path, f"lacks {name}")


def test_an_unlisted_member_is_named(path):
    rewrite(path, lambda members: members.update({"extra.bin": b"x"}))
    refuse(path, "extra.bin")


def test_a_compressed_archive_is_not_unpacked(path):
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    refuse(path, "is not stored as opu-fuse does")


@pytest.mark.parametrize(
    ("version", "writer", "help_"),
    [
        (1, "0.0.9", "compile the model again, or run it with opu-fuse 0.0.9"),
        (99, "7.1.dev3", "compile the model again, or update to opu-fuse 7.1.dev3"),
        (99, "two\nlines", "compile the model again, or update to the opu-fuse that wrote it"),
        (99, None, "compile the model again, or update to opu-fuse None"),
    ],
)
def test_another_schema_version_is_named_with_what_to_do(path, version, writer, help_):
    """Whatever else such a manifest holds."""

    def change(members):
        tree = {"schema_version": version, "tool_version": writer, "new": [1.5]}
        members["manifest.json"] = json.dumps(tree).encode()

    rewrite(path, change)
    refuse(path, f"is of schema version {version}, this opu-fuse reads 2 to 5; {help_}")


@pytest.mark.parametrize("tree", [[], {"schema_version": "2"}, {"schema_version": True}])
def test_a_manifest_without_a_schema_version_is_damaged(path, tree):
    rewrite(path, lambda members: members.update({"manifest.json": json.dumps(tree).encode()}))
    refuse(path, "manifest.json has no schema version; the file is damaged")


def test_a_machine_that_is_described_in_another_way_today_is_no_damage(path):
    edit_manifest(path, lambda tree: tree.update(spec_hash=1, tool_version="0.0.9"))
    refuse(
        path,
        "spec.yaml is not the machine opu-tiny 00000000001 to this opu-fuse",
        "compile the model again, or run it with opu-fuse 0.0.9",
    )


BROKEN = {
    "unknown key": (lambda t: t.update(extra=1), "extra"),
    "missing key": (lambda t: t.pop("groups"), "groups"),
    "wrong type": (lambda t: t["tensors"][0].update(offset="0"), "tensors.0.offset"),
    "float for int": (lambda t: t["tensors"][0].update(offset=0.0), "tensors.0.offset"),
    "not a number": (lambda t: t["tensors"][0].update(scale=float("nan")), "scale"),
    "tensor outside": (lambda t: t["tensors"][0].update(offset=1 << 20), "outside the feature"),
    "tensor over constants": (lambda t: t["tensors"][0].update(offset=0), "outside the feature"),
    "tensor over program": (lambda t: t["tensors"][1].update(offset=832), "overlaps the program"),
    "tensor between words": (lambda t: t["tensors"][0].update(offset=644), "between words of 8"),
    "tensor of another shape": (lambda t: t["tensors"][0].update(shape=[1, 8, 4, 5]), "stored as"),
    "tensor of another machine": (
        lambda t: t["tensors"][0]["layout"].update(lanes=64, word=64),
        "layout of another machine",
    ),
    "negative rows": (lambda t: t["tensors"][0]["layout"].update(rows=-4, cols=-4), "layout"),
    "tensor twice": (lambda t: t["tensors"].append(t["tensors"][0]), "x appears twice"),
    "window too large": (lambda t: t.update(window_bytes=1 << 40), "opu-tiny has 67108864"),
    "program outside": (lambda t: t.update(window_bytes=900), "of a window of 900"),
    "words outside": (lambda t: t["segments"][0].update(words=59), "is words 0..59 of 58"),
    "words before": (lambda t: t["segments"][0].update(program_offset=828), "is words -1"),
    "words between bursts": (
        lambda t: t["segments"][0].update(program_offset=836, words=57),
        "begins at byte 836, no multiple of 64",
    ),
    "no words": (lambda t: t["segments"][0].update(words=0), "is words 0..0"),
    "a group number short": (lambda t: t["segments"][0]["groups"].pop(), "8 instructions"),
    "a tile too many": (lambda t: t["segments"][0]["tiles"].append([0] * 5), "1 post tiles"),
    "unknown group": (
        lambda t: t["segments"][0].update(groups=[7] * 8),
        "groups that do not exist",
    ),
    "group out of order": (lambda t: t["groups"][0].update(index=3), "group 3 is at index 0"),
    "unknown group input": (lambda t: t["groups"][0].update(inputs=["q"]), "names q, which is no"),
    "pixels that no mode packs": (
        lambda t: t["groups"][0]["stages"][0].update(px=3),
        "group 0 has an impossible stage tensor conv",
    ),
    "unknown host member": (
        lambda t: t["segments"][1]["pieces"][1].update(member="host/009.onnx"),
        "a host segment runs host/009.onnx, which is missing",
    ),
    "host member that is not run": (
        lambda t: t["segments"][1]["pieces"].pop(0),
        "host/000.0.kernel.json belongs to 0 host pieces",
    ),
    "host member that is run twice": (
        lambda t: t["segments"][1]["pieces"].append(t["segments"][1]["pieces"][1]),
        "host/000.1.onnx belongs to 2 host pieces",
    ),
    "pieces in another order": (
        lambda t: t["segments"][1]["pieces"].reverse(),
        "host/000.1.onnx reads f, which nothing before it makes",
    ),
    "a value made twice": (
        lambda t: t["segments"][1].update(inputs=[["pool", "pool"], ["f", "pool"]]),
        "host/000.0.kernel.json makes f again",
    ),
    "a kernel with another result": (
        lambda t: t["segments"][1]["pieces"][0].update(outputs=["g", "f"]),
        "host/000.0.kernel.json reads and makes other values than its segment says",
    ),
    "a model with another operand": (
        lambda t: t["segments"][1]["pieces"][1].update(inputs=["pool"]),
        "host/000.1.onnx reads and makes other values than its segment says",
    ),
    "a result that no piece makes": (
        lambda t: t["segments"][1].update(rounded=[["pool2", "q"]]),
        "a host segment promises pool2:int8, which none of its pieces makes",
    ),
    "unknown host value": (
        lambda t: t["segments"][1].update(inputs=[["pool", "nothing"]]),
        "reads nothing, which nothing computes",
    ),
    "unknown port value": (
        lambda t: t["outputs"][0].update(value="z"),
        "y has value z, which nothing computes",
    ),
    "unknown dtype": (lambda t: t["inputs"][0].update(dtype="complex64"), "has dtype complex64"),
    "port of another shape": (lambda t: t["inputs"][0].update(shape=[1, 2]), "has shape (1, 2)"),
    "float port of int8": (lambda t: t["inputs"][0].update(scale=None), "has no scale"),
    "zero scale": (lambda t: t["inputs"][0].update(scale=0.0), "has scale 0.0"),
    "instructions of another group": (
        lambda t: t["groups"][0]["instructions"][0].update(first=0, first_word=0),
        "group 0 (conv) names instructions that are not its own",
    ),
    "no instructions": (
        lambda t: t["groups"][0].update(instructions=[]),
        "group 0 (conv) names instructions that are not its own",
    ),
    "words of another instruction": (
        lambda t: t["groups"][0]["instructions"][0].update(last_word=55),
        "group 0 (conv) names instructions that are not its own",
    ),
    "operator twice": (
        lambda t: t["groups"][0]["ops"].append(t["groups"][0]["ops"][0]),
        "operator conv appears twice",
    ),
    "source map": (lambda t: t["source_map"].update(a=[["a"], 9]), "node a is in group 9"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_manifest_that_promises_nonsense_is_refused(path, kind):
    change, words = BROKEN[kind]
    edit_manifest(path, change)
    refuse(path, words)


BROKEN_MEMBERS = {
    "no JSON": ("host/000.0.kernel.json", b"{", "host/000.0.kernel.json: the text"),
    "another kernel version": (
        "host/000.0.kernel.json",
        host_kernel().replace(b'"kernel_version": 1', b'"kernel_version": 7'),
        "host/000.0.kernel.json: kernel of version 7, not 1",
    ),
    "a map outside its tensor": (
        "host/000.0.kernel.json",
        host_kernel().replace(b"-> (d0, d1, d2, d3)", b"-> (d0, d1, d2, d3 + 1)", 1),
        "host/000.0.kernel.json: ",
    ),
    "no ONNX": ("host/000.1.onnx", b"nonsense", "host/000.1.onnx: is no ONNX model"),
}


@pytest.mark.parametrize("kind", BROKEN_MEMBERS)
def test_a_damaged_host_member_is_named_even_if_its_hash_is_right(path, kind):
    name, data, words = BROKEN_MEMBERS[kind]

    def change(members):
        tree = json.loads(members["manifest.json"])
        tree["members"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        members.update({name: data, "manifest.json": json.dumps(tree).encode()})

    rewrite(path, change)
    refuse(path, words)


def test_a_host_member_is_a_kernel_or_a_model():
    bundle = sample_bundle()
    host = bundle.segments[1]
    assert isinstance(host, HostSegment)
    piece = replace(host.pieces[1], member="host/000.1.so")
    segment = replace(host, pieces=(host.pieces[0], piece))
    hosts = {"host/000.0.kernel.json": host_kernel(), "host/000.1.so": b""}
    wrong = replace(bundle, segments=(bundle.segments[0], segment), hosts=hosts)
    with pytest.raises(ProgramError, match=r"host/000\.1\.so: is neither a kernel nor a model"):
        check_bundle(wrong, HW, "x.opu")


def test_a_bundle_that_breaks_its_promises_is_not_written(tmp_path):
    bundle = sample_bundle()
    wrong = replace(bundle.tensors[0], offset=1 << 30)
    with pytest.raises(InternalError, match="is outside the feature maps"):
        save(replace(bundle, tensors=(wrong, bundle.tensors[1])), tmp_path / "x.opu")
    assert list(tmp_path.iterdir()) == []


def test_a_spec_that_is_none_is_refused(path):
    def change(members):
        members["spec.yaml"] = b"name: [1, 2"

    rewrite(path, change)
    refuse(path, "spec.yaml")
