"""The notebook of examples/ runs from a fresh kernel, and shows what its text says."""

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SECONDS = 300
"""For one cell, on a machine that does much else."""


def shown(cell: nbformat.NotebookNode) -> dict[str, str]:
    """What a cell shows last: type -> text."""
    return dict(cell.outputs[-1].get("data") or {"text/plain": cell.outputs[-1].text})


@pytest.fixture(scope="module")
def cells() -> list[nbformat.NotebookNode]:
    notebook = nbformat.read(EXAMPLES / "first_steps.ipynb", as_version=4)
    resources = {"metadata": {"path": str(EXAMPLES)}}
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources)
    path = os.pathsep.join(filter(None, [str(EXAMPLES.parent), os.environ.get("PYTHONPATH")]))
    client.execute(env=os.environ | {"PYTHONPATH": path})
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_results(path):
    """They would be those of another version."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []


def test_every_notebook_is_run():
    assert [path.name for path in NOTEBOOKS] == ["first_steps.ipynb"]


@pytest.mark.slow
def test_the_first_steps_go_from_a_model_to_a_sweep(cells):
    texts = {cell.source: shown(cell) for cell in cells}

    def of(code: str) -> dict[str, str]:
        (found,) = [data for source, data in texts.items() if code in source]
        return found

    assert of("load_hw")["image/svg+xml"].startswith("<svg")
    assert "all groups" in of("opu_fuse.compile")["text/html"]
    assert "conv1, conv1/bias, relu1" in of("opu_fuse.partition")["text/html"]
    assert of("program.check")["text/plain"].startswith("<CheckResult passed: 0 of ")
    assert "cycles (measured, cycle)" in of("timed = program.run")["text/html"]
    assert "<iframe" in of("roofline")["text/html"]
    table = of("opu_fuse.sweep")["text/plain"]
    assert "opu-tiny" in table
    assert "NaN" not in table


@pytest.mark.slow
def test_no_cell_of_the_first_steps_warns(cells):
    streams = [out for cell in cells for out in cell.outputs if out.output_type == "stream"]
    assert [out.text for out in streams if out.name == "stderr"] == []
