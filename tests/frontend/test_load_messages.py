"""Bad input ends in one line that says where, what and what would help."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from opu_fuse import zoo
from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model

CONV = """
agraph (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) {
    y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
}
"""
WEIGHT = np.ones((4, 3, 3, 3), np.float32)


def refused(model: object, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(model)  # type: ignore[arg-type]  # wrong types are what is tested
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(message, text), text


def test_a_missing_file_is_named(tmp_path: Path):
    refused(tmp_path / "no.onnx", r"no\.onnx: there is no such file; check the path")


def test_a_folder_is_no_model(tmp_path: Path):
    refused(tmp_path, "this is not a file; name the .onnx file itself")


@pytest.mark.parametrize("content", [b"", b"hello, this is text", b"\x08\x07", bytes(range(256))])
def test_bytes_that_are_no_onnx_model(tmp_path: Path, content: bytes):
    path = tmp_path / "text.onnx"
    path.write_bytes(content)
    refused(path, r"text\.onnx: this is not an ONNX model, .*; export the network to ONNX")


def test_a_truncated_model(tmp_path: Path, onnx_text: Callable[..., onnx.ModelProto]):
    data = onnx_text(CONV, w=WEIGHT).SerializeToString()
    path = tmp_path / "short.onnx"
    path.write_bytes(data[: len(data) // 2])
    refused(path, "this is not an ONNX model")


@pytest.mark.parametrize("name", ["thenode", "theweight", "theinput", "thelabel"])
def test_names_that_are_no_text(
    name: str, tmp_path: Path, onnx_text: Callable[..., onnx.ModelProto]
):
    """protobuf reads them as bytes, and refuses to write them."""
    text = "g (float[1, 4] theinput) => (float[1, 4] y) { [thenode] y = Add(theinput, theweight) }"
    model = onnx_text(text, theweight=np.ones(4, np.float32))
    model.metadata_props.add(key="k", value="thelabel")
    path = tmp_path / "odd.onnx"
    odd = name.encode().replace(b"the", b"th\xcb")
    path.write_bytes(model.SerializeToString().replace(name.encode(), odd))
    refused(path, r"odd\.onnx: .*'th\\xcb")


def test_an_opset_older_than_seven(onnx_text: Callable[..., onnx.ModelProto]):
    refused(
        onnx_text(CONV, opset=6, w=WEIGHT), "opset 6 is older than 7.*export it again with opset"
    )


def test_an_opset_that_the_onnx_package_does_not_know(onnx_text: Callable[..., onnx.ModelProto]):
    newest = onnx.defs.onnx_opset_version()
    refused(
        onnx_text(CONV, opset=newest + 1, w=WEIGHT),
        rf"opset {newest + 1} is newer than {newest}, the newest that onnx .* knows; export it",
    )


def _twice(graph: onnx.GraphProto):
    graph.initializer.append(graph.initializer[0])


WRONG: dict[str, tuple[Callable[[onnx.GraphProto], None], str]] = {
    "twice": (_twice, "two weights are called 'w'; check the export"),
    "unnamed": (lambda g: setattr(g.initializer[0], "name", ""), "a weight has no name"),
    "negative": (lambda g: g.initializer[0].dims.__setitem__(0, -4), r"'w' has the shape \[-4, 3"),
    "unknown type": (lambda g: setattr(g.initializer[0], "data_type", 99), "data type 99, which"),
    "no type": (lambda g: setattr(g.initializer[0], "data_type", 0), "data type 0, which ONNX has"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_weights_that_are_none(kind: str, onnx_text: Callable[..., onnx.ModelProto]):
    change, message = WRONG[kind]
    model = onnx_text(CONV, w=WEIGHT)
    change(model.graph)
    refused(model, message)


@pytest.mark.parametrize("lost", [4, 7])
@pytest.mark.parametrize(
    ("channels", "message"),
    [(4, "the graph is invalid .*name: w.*432 bytes"), (400, "data are missing .*weight 'w'")],
)
def test_weights_with_data_missing(
    channels: int, message: str, lost: int, onnx_text: Callable[..., onnx.ModelProto]
):
    text = CONV.replace("1, 4, 8, 8", f"1, {channels}, 8, 8")
    model = onnx_text(text, w=np.ones((channels, 3, 3, 3), np.float32))
    (weight,) = model.graph.initializer
    weight.raw_data = weight.raw_data[:-lost]
    refused(model, message)


def test_external_data_that_is_not_there(tmp_path: Path, onnx_text: Callable[..., onnx.ModelProto]):
    path = tmp_path / "big.onnx"
    onnx.save(
        onnx_text(CONV, w=WEIGHT),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "w.bin").unlink()
    refused(
        path,
        r"its external data cannot be read .*w\.bin.*keep the data file in the folder of the .onnx",
    )


def test_external_data_without_a_folder(tmp_path: Path, onnx_text: Callable[..., onnx.ModelProto]):
    path = tmp_path / "big.onnx"
    onnx.save(
        onnx_text(CONV, w=WEIGHT),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    refused(onnx.load(path, load_external_data=False), "external data.*pass the path")


def test_a_dynamic_height_names_input_and_dimension(onnx_text: Callable[..., onnx.ModelProto]):
    text = CONV.replace("[1, 3, 8, 8]", "[N, 3, height, 8]").replace("[1, 4, 8, 8]", "[N, 4, H, W]")
    refused(
        onnx_text(text, w=WEIGHT),
        r"dimension 2 \('height'\) of input 'x' is dynamic; .* dims={'height': …} or shapes=",
    )


def test_a_fixed_batch_other_than_one(onnx_text: Callable[..., onnx.ModelProto]):
    text = CONV.replace("[1, ", "[4, ")
    refused(onnx_text(text, w=WEIGHT), "input 'x' has batch 4, networks are compiled for batch 1")


def test_an_unknown_operator(onnx_text: Callable[..., onnx.ModelProto]):
    text = CONV.replace("Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>", "Convolve")
    refused(onnx_text(text, w=WEIGHT), "the graph is invalid .*Convolve.*check the export")


@pytest.mark.parametrize("declared", ["", "<float[1, 3, 8, 8] c>"])
def test_operators_of_a_library_that_the_host_cannot_load(declared: str):
    """Nothing infers the shape of what they make: it is not that which is told."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "rounding" : 1, "com.microsoft" : 1]>
    agraph (float[1, 3, 8, 8] x) => (float[a, b, c, d] y) {declared} {{
        c = rounding.ToSteps (x)  d = rounding.ToSteps (c)  e = com.microsoft.Gelu (d)
        y = Relu (e)
    }}"""
    refused(
        onnx.parser.parse_model(text),
        r"ONNX Runtime cannot load: rounding:ToSteps \(2\); export it in operators of the ONNX",
    )


def test_an_operator_without_an_upgrade(onnx_text: Callable[..., onnx.ModelProto]):
    text = """
    agraph (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {
        y = BatchNormalization <spatial = 0> (x, a, a, a, a)
    }
    """
    refused(
        onnx_text(text, opset=7, a=np.ones(3, np.float32)),
        r"opset 7 cannot be upgraded to 17 \(Attribute spatial must have value 1\); export",
    )


BATCH_NORM = """
    agraph (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {{
        c = Relu (x)
        [bn] y, {results} = BatchNormalization <{mode}> ({operands})
    }}
    """
TRAINING = r"node 'bn' \(BatchNormalization\): it is in training mode.*model\.eval\(\)"


@pytest.mark.parametrize(
    ("opset", "results", "mode"),
    [(13, "m, v, n, u", "epsilon = 0.001"), (17, "m, v", "training_mode = 1")],
)
def test_a_network_left_in_training_mode(opset, results, mode, onnx_text):
    text = BATCH_NORM.format(results=results, mode=mode, operands="c, a, a, a, a")
    refused(onnx_text(text, opset=opset, a=np.ones(3, np.float32)), TRAINING)


@pytest.mark.parametrize("operands", ["c, a, a, m, m", "w, a, a, a, a"])
def test_a_normalisation_that_has_to_compute_its_statistics_is_no_mistake(operands, onnx_text):
    """Those of training are not there, or it is weights that are normalised."""
    text = BATCH_NORM.format(results="n, v", mode="training_mode = 1", operands=operands)
    means = "m = ReduceMean <axes = [0, 2, 3], keepdims = 0> (x)"
    weight = np.ones((1, 3, 8, 8), np.float32)
    text = text.replace("c = Relu (x)", f"c = Relu (x) {means}")
    load_model(onnx_text(text, a=np.ones(3, np.float32), w=weight))


def test_an_unknown_zoo_network_lists_the_known_ones():
    with pytest.raises(
        ModelError, match="there is no such network; choose one of resnet18, resnet50"
    ):
        zoo.build("resnet19")


def test_a_zoo_image_that_is_too_small():
    with pytest.raises(ModelError, match="an input of 8x8 is too small; use at least 32x32"):
        zoo.build("resnet18", image=8)
