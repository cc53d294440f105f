"""Classes and boxes of outputs, by hand; drawn where the object is."""

import numpy as np
import onnx
import onnx.reference
import pytest
from PIL import Image
from typer.testing import CliRunner

from opu_fuse.cli.main import app
from opu_fuse.drawing import draw
from opu_fuse.errors import RunError
from opu_fuse.pictures import Preprocessing, load_pictures
from opu_fuse.predictions import Boxes, predictions

# Two boxes of class 2 on one object, one of class 0 at the same place, one elsewhere, a faint one.
CENTRED = np.array(
    [
        [50, 40, 20, 10, 0.1, 0.2, 0.9],
        [51, 40, 20, 10, 0.1, 0.2, 0.8],
        [50, 40, 20, 10, 0.6, 0.2, 0.1],
        [10, 10, 4, 4, 0.1, 0.1, 0.7],
        [80, 80, 8, 8, 0.1, 0.2, 0.1],
    ],
    np.float32,
)
CORNERS = [[40, 35, 60, 45], [8, 8, 12, 12], [40, 35, 60, 45]]
LABELS, SCORES = [2, 2, 0], [0.9, 0.7, 0.6]


def many(rows):
    """An output has more boxes than numbers of a box: others have no score."""
    return np.concatenate([rows, np.zeros((20 - len(rows), rows.shape[1]), np.float32)])


def version_8():
    return many(CENTRED).T[np.newaxis]


def version_5():
    """The score of an object is half; those of its classes twice as high."""
    objects = np.full((len(CENTRED), 1), 0.5, np.float32)
    return many(np.concatenate([CENTRED[:, :4], objects, 2 * CENTRED[:, 4:]], axis=1))[np.newaxis]


def end_to_end():
    """Suppressed by the network, in any order."""
    found = np.zeros((1, 300, 6), np.float32)
    found[0, [5, 2, 9]] = [[*c, s, k] for c, s, k in zip(CORNERS, SCORES, LABELS, strict=True)]
    return found


@pytest.mark.parametrize(
    ("output", "classes"),
    [(version_8, 3), (version_5, 3), (end_to_end, None)],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_all_versions_show_the_same_objects(output, classes):
    said = predictions({"output0": output()}, min_score=0.25)
    assert said.classes == classes
    assert isinstance(said.found, Boxes)
    np.testing.assert_allclose(said.found.corners, CORNERS)
    np.testing.assert_allclose(said.found.scores, SCORES, rtol=1e-6)
    assert said.found.labels.tolist() == LABELS


def test_boxes_are_suppressed_as_onnx_does(rng):
    low = rng.uniform(0, 60, (80, 2))
    corners = np.concatenate([low, low + rng.uniform(5, 40, (80, 2))], axis=1).astype(np.float32)
    scores = rng.permutation(80).astype(np.float32).reshape(80, 1) / 100 + 0.1
    centred = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - low], axis=1)
    output = np.concatenate([centred, scores], axis=1, dtype=np.float32).T[np.newaxis]
    found = predictions({"boxes": output}, min_score=0.205).found
    assert isinstance(found, Boxes)
    (kept,) = onnx.reference.ReferenceEvaluator(NMS).run(
        None, {"boxes": corners[np.newaxis], "scores": scores.T[np.newaxis]}
    )
    assert 1 < len(kept) < 70
    np.testing.assert_allclose(found.corners, corners[np.asarray(kept)[:, 2]], atol=1e-4)


NMS = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 17]>
nms (float[1,80,4] boxes, float[1,1,80] scores) => (int64[k,3] kept) {
    most = Constant <value_ints: ints = [80]> ()
    overlap = Constant <value_floats: floats = [0.45]> ()
    least = Constant <value_floats: floats = [0.205]> ()
    kept = NonMaxSuppression (boxes, scores, most, overlap, least)
}""")


def test_logits_of_a_classifier_become_scores_and_scores_remain():
    logits = np.log(np.array([[[[0.1]], [[0.6]], [[0.05]], [[0.05]], [[0.15]], [[0.05]]]])) + 3
    said = predictions({"scores": logits}, min_score=0.25)
    assert [label for label, _ in said.found] == [1, 4, 0, 2, 3]
    np.testing.assert_allclose([score for _, score in said.found][:3], [0.6, 0.15, 0.1], rtol=1e-5)
    sigmoids = np.array([[0.9, 0.8, 0.0]], np.float32)
    np.testing.assert_allclose(
        [s for _, s in predictions({"x": sigmoids}, 0.25).found], [0.9, 0.8, 0]
    )


@pytest.mark.parametrize(
    "shape", [(2, 10), (1, 3, 8, 8), (1, 4, 100), (1, 20, 20), (1, 100, 5), (7,)]
)
def test_other_outputs_are_refused(shape):
    with pytest.raises(
        RunError, match="neither that of a classifier nor of a YOLO detector"
    ) as error:
        predictions({"masks": np.zeros(shape)}, min_score=0.25)
    assert "output masks" in str(error.value)
    assert "\n" not in str(error.value)


def test_several_outputs_are_refused():
    with pytest.raises(RunError, match=r"has 2 outputs \(a, b\)"):
        predictions({"a": np.zeros((1, 9)), "b": np.zeros((1, 9))}, min_score=0.25)


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(),
        Preprocessing(resize=(60, 30)),
        Preprocessing(resize=50, crop=(40, 45)),
        Preprocessing(crop=(70, 80), layout="nhwc"),
        Preprocessing(letterbox=60),
        Preprocessing(letterbox=(120, 75), fill=0),
    ],
)
def test_a_box_is_drawn_where_its_object_is_in_the_picture(preprocessing, tmp_path):
    pixels = np.zeros((100, 120, 3), np.uint8)
    pixels[40:60, 50:80] = 255
    Image.fromarray(pixels).save(tmp_path / "x.png")
    sample = load_pictures(tmp_path / "x.png", preprocessing)[0]
    light = sample.max(axis=0 if preprocessing.layout == "nchw" else 2) > 0.5
    rows, cols = (np.flatnonzero(light.any(axis=axis)) for axis in (1, 0))
    box = np.array([[cols[0], rows[0], cols[-1] + 1, rows[-1] + 1]], np.float32)
    found = Boxes(box, np.array([0.9]), np.array([0]))
    picture, lines = draw(
        *(predictions({"x": version_8()}, 0.25)._replace(found=found), tmp_path / "x.png"),
        *(preprocessing, ("square",)),
    )
    assert lines == ["square 90.0%"]
    drawn = np.asarray(picture) != pixels
    inside = drawn.any(axis=2)
    rows = np.flatnonzero(inside[:, 55:75].all(axis=1))
    cols = np.flatnonzero(inside[45:55].all(axis=0))
    for measured, wanted in ((rows.max(), 60), (cols.min(), 50), (cols.max(), 80)):
        assert abs(measured - wanted) <= 5  # a pixel of the smallest sample is 4 of the picture


@pytest.fixture
def program(tmp_path):
    """Channel means: of a red picture the class 0."""
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 17]>
    net (float[1,3,8,8] image) => (float[1,3] scores) {
        a = Relu (image)
        b = GlobalAveragePool (a)
        scores = Flatten (b)
    }""")
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "p.yaml").write_text("resize: [8, 8]")
    Image.new("RGB", (200, 160), (250, 40, 0)).save(tmp_path / "red.png")
    (tmp_path / "names.txt").write_text("red\ngreen\nblue\n")
    done = ran("compile", tmp_path / "net.onnx", "--hw", "opu-tiny", "-o", tmp_path / "net.opu")
    assert done.exit_code == 0, done.output
    return tmp_path / "net.opu"


def ran(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_run_draws_and_prints_the_classes_of_a_picture(program):
    folder = program.parent
    target = folder / "out.png"
    done = ran(
        *("run", program, "--input", folder / "red.png", "--pictures", folder / "p.yaml"),
        *("--draw", target, "--labels", folder / "names.txt"),
    )
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()[-4:-1]] == ["red", "green", "blue"]
    with Image.open(target) as picture:
        assert picture.size == (200, 160)
        colours = np.unique(np.asarray(picture).reshape(-1, 3), axis=0).tolist()
    assert [250, 40, 0] in colours
    assert [0, 0, 0] in colours  # behind the text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--labels", "names.txt"], "--labels without --draw"),
        (["--draw", "out.png"], "--draw takes one picture"),
        (["--draw", "out.gif", "--input", "red.png"], "the suffix must be one of"),
        (["--draw", "out.png", "--engine", "cycle"], "not an option of the cycle engine"),
        (["--draw", "out.png", "--input", ".", "--pictures", "p.yaml"], "--draw takes one picture"),
    ],
)
def test_wrong_usage_is_refused_before_the_run(program, arguments, said, monkeypatch):
    monkeypatch.chdir(program.parent)
    done = ran("run", program, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_too_few_labels_are_refused_before_the_run(program, monkeypatch):
    monkeypatch.chdir(program.parent)
    program.with_name("few.txt").write_text("red\ngreen\n")
    arguments = ("--input", "red.png", "--pictures", "p.yaml", "--draw", "out.png")
    done = ran("run", program, *arguments, "--labels", "few.txt")
    assert "few.txt: has 2 lines, the network 3 classes" in str(done.exception)
    assert not program.with_name("out.png").exists()
