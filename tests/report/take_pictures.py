"""Take the pictures of docs/gallery.md and of other pages again, from real runs, in Chromium.

`python -m tests.report.take_pictures` writes docs/pictures/*.png. It needs Chromium; look at what
it has taken. The drawings of machines (docs/pictures/*.svg) are those of `make generate`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
DIGITS = "examples/digits/digits.onnx"
SAMPLES = "--calibration examples/digits/calibration.npz"
SWEEP = """\
models: [tiny_residual]
specs:
  - spec: opu-tiny
    set:
      buffers.feature.words: [96, 128, 192, 256, 384, 512]
      buffers.weight.words: [64, 128, 256]
"""
COMMANDS = (
    f"compile {DIGITS} --hw opu-tiny {SAMPLES} -o digits.opu",
    "report digits.opu -o digits.html",
    "zoo export unet -o unet.onnx",
    "compile unet.onnx --hw opu-1024 -o unet.opu",
    "report unet.opu -o unet.html",
    "zoo export resnet50 -o resnet50.onnx",
    "compile resnet50.onnx --hw opu-1024 -o resnet50.opu",
    "report resnet50.opu -o resnet50.html",
    "sweep sweep.yaml -o sweep",
    "explore --model tiny_residual --image 32 --device ecp5-85 --trials 12 -o explore",
)


def network(page: Any, path: Path) -> None:
    """The whole graph, without the empty space at its sides."""
    page.add_style_tag(content=".graph { height: 1000px !important }")
    page.get_by_role("button", name="Fit").first.click()
    page.wait_for_timeout(500)
    box = page.locator(".graph").first.bounding_box()
    middle = box["x"] + box["width"] / 2
    clip = {"x": middle - 120, "y": box["y"] + 2, "width": 240, "height": box["height"] - 4}
    page.screenshot(path=path, full_page=True, clip=clip)


def selected(page: Any, path: Path) -> None:
    """The page with an operator selected."""
    page.locator('.operator:has-text("layer1.1.relu1")').first.click()
    page.wait_for_timeout(500)
    page.screenshot(path=path)


def engines(page: Any, path: Path) -> None:
    """The chart of engines over time."""
    between(page, path, "Engines over time", "Memory over time")


def roofline(page: Any, path: Path) -> None:
    """Roofline and pipeline."""
    between(page, path, "Roofline", "Engines over time")


def between(page: Any, path: Path, first: str, last: str) -> None:
    """What is between two headings."""
    tops = [
        page.locator(".part", has_text=title).first.bounding_box()["y"] for title in (first, last)
    ]
    clip = {"x": 0, "y": tops[0] - 8, "width": 1180, "height": tops[1] - tops[0]}
    page.screenshot(path=path, full_page=True, clip=clip)


def screen(page: Any, path: Path) -> None:
    """What a window shows."""
    page.screenshot(path=path)


def outputs(page: Any, path: Path) -> None:
    """The cells of a notebook."""
    page.locator("body").screenshot(path=path)


PAGES: Mapping[str, tuple[str, Callable[[Any, Path], None], int]] = {
    "digits-groups.png": ("digits.html", network, 1000),
    "digits-engines.png": ("digits.html", engines, 1000),
    "roofline.png": ("unet.html", roofline, 1000),
    "report.png": ("resnet50.html", selected, 1110),
    "sweep.png": ("sweep/sweep.html", screen, 780),
    "explore.png": ("explore/explore.html", screen, 860),
    "notebook.png": ("notebook.html", outputs, 900),
}
"""Picture -> page, what it shows, height of the window."""


def notebook_html(folder: Path) -> str:
    """Input and output of the cells that draw a machine, groups and a timed run."""
    book = nbformat.read(ROOT / "examples" / "first_steps.ipynb", as_version=4)
    NotebookClient(book, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    cells = [c for c in book.cells if c.source.strip().splitlines()[-1:] in SHOWN_CELLS]
    shown = [
        f"<pre>{cell.source}</pre>"
        + "".join(out["data"].get("text/html", "") for out in cell.outputs if "data" in out)
        for cell in cells
    ]
    style = (
        "body { font: 14px system-ui; margin: 0; padding: 12px; max-width: 900px }"
        "pre { background: #f2f5f8; padding: 8px }"
    )
    return f"<!doctype html><meta charset=utf-8><style>{style}</style>{''.join(shown)}"


SHOWN_CELLS = (["opu_fuse.partition(model, hw)"], ["timed"])


def main() -> int:
    """Run the commands in a folder of their own and take all pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "digits").symlink_to(ROOT / "examples" / "digits")
        (folder / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        for command in COMMANDS:
            words = [sys.executable, "-m", "opu_fuse", *command.split()]
            subprocess.run(
                words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
            )
        (folder / "notebook.html").write_text(notebook_html(folder), encoding="utf-8")
        for picture, (file, take, height) in PAGES.items():
            page = browser.new_page(viewport={"width": 1180, "height": height})
            page.goto((folder / file).as_uri())
            page.wait_for_timeout(2000)
            take(page, PICTURES / picture)
            with Image.open(PICTURES / picture) as taken:
                taken.convert("RGB").quantize(64).save(PICTURES / picture, optimize=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
