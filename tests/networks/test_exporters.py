"""The page on exporters, section by section, with random weights instead of trained ones."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from opu_fuse.pictures import Preprocessing, load_pictures
from opu_fuse.program import Program

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "exporters.md").read_text(encoding="utf-8")
VIT = (
    "config_class(num_hidden_layers=2, hidden_size=192, num_attention_heads=3,"
    " intermediate_size=768, num_labels=1000)"
)
UNTRAINED = {
    "yolo11n.pt": "yolo11n.yaml",
    "pretrained=True": "pretrained=False",
    '.from_pretrained("google/vit-base-patch16-224")': f"(ViTForImageClassification.{VIT})",
}
"""Weights that the packages would download."""


LETTERBOX = """
import numpy as np
from ultralytics.data.augment import LetterBox
letterbox = LetterBox((320, 320), auto=False)
np.save("y.npy", letterbox(image=np.load("x.npy")))
"""


def section(title):
    """Its Python, and its commands."""
    (text,) = re.findall(rf"^## {title}$(.+?)(?=^## )", PAGE, flags=re.MULTILINE | re.DOTALL)
    python = "\n".join(re.findall(r"^```python$(.+?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    for trained, untrained in UNTRAINED.items():
        python = python.replace(trained, untrained)
    return python, re.findall(r"^opu-fuse (.+)$", text, flags=re.MULTILINE)


def ran(folder, *command):
    environment = {**os.environ, "YOLO_OFFLINE": "1", "YOLO_AUTOINSTALL": "false"}
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "YOLO_CONFIG_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def followed(tmp_path, rng):
    """What the commands of a section print, in the order of the page."""

    def follow(title, *packages):
        for package in packages:
            if find_spec(package) is None:
                pytest.skip("extra `exporters` is not installed")
        python, commands = section(title)
        (tmp_path / "pictures").mkdir()
        for file in ("photo.png", "pictures/a.png", "pictures/b.png"):
            Image.fromarray(rng.integers(0, 256, (300, 400, 3), np.uint8)).save(tmp_path / file)
        (tmp_path / "export.py").write_text(python)
        ran(tmp_path, "export.py")
        return [ran(tmp_path, "-m", "opu_fuse", *command.split()) for command in commands]

    return follow


@pytest.mark.nightly
def test_a_module_of_pytorch(followed, tmp_path):
    followed("PyTorch", "torch")
    assert not Program.load(tmp_path / "net.opu").bundle.hosts


@pytest.mark.nightly
def test_ultralytics(followed, tmp_path):
    _, drawn = followed("Ultralytics", "ultralytics")
    assert "output0: float32[1, 84, 2100]" in drawn
    assert len((tmp_path / "names.txt").read_text().splitlines()) == 80
    with Image.open(tmp_path / "boxes.png") as picture:
        assert picture.size == (400, 300)


@pytest.mark.nightly
@pytest.mark.parametrize("sizes", [(300, 400), (417, 231), (90, 120)])
def test_a_letterbox_is_that_of_ultralytics(sizes, tmp_path):
    """But for the filter of the resampling, which is OpenCV's there."""
    if find_spec("ultralytics") is None:
        pytest.skip("extra `exporters` is not installed")
    rows, cols = np.indices(sizes)
    pixels = np.stack([rows * 250 // sizes[0], cols * 250 // sizes[1], rows * 0], axis=2)
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "x.png")
    np.save(tmp_path / "x.npy", pixels.astype(np.uint8))
    ran(tmp_path, "-c", LETTERBOX)
    theirs = np.load(tmp_path / "y.npy").astype(int)
    ours = load_pictures(tmp_path / "x.png", Preprocessing(letterbox=320, range=255))
    ours = ours[0].transpose(1, 2, 0).astype(int)
    margin = (ours == 114).all(axis=2)
    assert np.array_equal(margin, (theirs == 114).all(axis=2))
    assert margin.any()
    assert np.abs(ours - theirs).max() <= 2


@pytest.mark.nightly
def test_timm(followed, tmp_path):
    _, drawn = followed("timm", "timm")
    assert len(re.findall(r"^class \d+ \d+\.\d%$", drawn, flags=re.MULTILINE)) == 5
    assert not Program.load(tmp_path / "resnet18.opu").bundle.hosts


@pytest.mark.nightly
def test_hugging_face_optimum(followed, tmp_path):
    compiled, drawn = followed("Hugging Face Optimum", "optimum", "transformers")
    assert len(re.findall(r"^class \d+ \d+\.\d%$", drawn, flags=re.MULTILINE)) == 5
    assert "all groups" in compiled
    assert not Program.load(tmp_path / "vit.opu").bundle.hosts


@pytest.mark.nightly
def test_brevitas(followed, tmp_path):
    _, checked = followed("Brevitas", "brevitas")
    assert re.search(r"check against onnxruntime .*: 0 of [\d,]+ values differ", checked)
    assert ": exact" in checked.splitlines()[-1]
    assert not Program.load(tmp_path / "qat.opu").bundle.hosts
