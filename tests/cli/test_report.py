"""`opu-fuse report`: what is refused, and the accuracy that was measured before."""

import json
import sys

import pytest

from opu_fuse.number_text import byte_size


def test_the_json_beside_the_page_has_what_was_measured(opu_fuse, program_file, tmp_path):
    page, measured = tmp_path / "r.html", tmp_path / "a.json"
    outputs = [{"name": "y", "ratio": 31.25, "agreement": 0.5, "right": None}]
    measured.write_text(
        json.dumps({"model": "tiny_residual", "machine": "opu-tiny", "outputs": outputs})
    )
    called = opu_fuse("report", program_file, "-o", page, "--accuracy", measured)
    assert called.code == 0
    assert byte_size(page.stat().st_size) in called.out
    (found,) = json.loads(page.with_suffix(".json").read_text())["programs"]
    assert found["summary"]["accuracy"] == outputs
    assert "y: SNR 31.2 dB (good), largest channel as in float 50.0 %" in page.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not the output of `opu-fuse accuracy --json`; redirect that output into a file"),
        ("{", "is not the output of"),
        (
            '{"model": "m", "machine": "x", "outputs": []}',
            "is about m on x, and none of the programs is; leave it out",
        ),
    ],
)
def test_what_no_program_belongs_to_is_refused(opu_fuse, program_file, tmp_path, text, message):
    page, measured = tmp_path / "r.html", tmp_path / "a.json"
    measured.write_text(text)
    called = opu_fuse("report", program_file, "-o", page, "--accuracy", measured)
    assert called.code == 1
    assert message in called.err
    assert not page.exists()


@pytest.mark.parametrize("name", ["r.pdf", "r.json", "r"])
def test_a_page_is_called_html(opu_fuse, program_file, tmp_path, name):
    called = opu_fuse("report", program_file, "-o", tmp_path / name)
    assert called.code == 2
    assert "must be one of .html, .htm" in " ".join(called.err.split())
    assert not (tmp_path / name).exists()


def test_what_was_measured_is_a_text(opu_fuse, program_file, tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    page = tmp_path / "r.html"
    called = opu_fuse("report", program_file, "-o", page, "--accuracy", tmp_path / "a.json")
    assert called.code == 1
    assert "a.json: is no UTF-8 text; give a text file" in called.err


def test_without_bokeh_it_says_what_to_install(opu_fuse, program_file, tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "bokeh" or ".report.page" in n]:
        monkeypatch.delitem(sys.modules, name)

    class Missing:
        @staticmethod
        def find_spec(name, *_):
            if name == "bokeh":
                raise ModuleNotFoundError("No module named 'bokeh'", name="bokeh")

    monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])
    called = opu_fuse("report", program_file, "-o", tmp_path / "r.html")
    assert called.code == 1
    assert "pip install 'opu-fuse[report]'" in called.err
