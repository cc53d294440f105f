"""docs/passes.md says what is there."""

import re
from pathlib import Path
from typing import Any

from opu_fuse.frontend.pass_steps import NAMES
from opu_fuse.frontend.prepare import ALL_PASSES
from opu_fuse.passes import SKIP_KEY, PassContext, lookup, registered
from opu_fuse.passes.context import CONFIG
from opu_fuse.pipeline import STAGES
from tests.passes.recorder import model_of

MANUAL = (Path(__file__).parents[2] / "docs" / "passes.md").read_text(encoding="utf-8")


def rows(header):
    """The cells of the table whose header line starts with this."""
    lines = iter(MANUAL[MANUAL.index(header) :].splitlines()[2:])
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_transform_has_its_row():
    table = {name.strip("`"): int(level) for name, level, _ in rows("| pass | level |")}
    assert table == {info.name: info.opt_level for info in registered()}


def test_every_step_of_the_front_end_has_its_row():
    assert [name for name, _ in rows("| step | what")] == [f"`{name}`" for name in NAMES]
    missing = [p.name for p in ALL_PASSES if f"`{p.name}`" not in MANUAL]
    assert not missing


def test_every_stage_has_its_row():
    assert [name for name, _ in rows("| stage | text")] == [f"`{name}`" for name in STAGES]


def test_every_key_has_its_row():
    table = [tuple(row) for row in rows("| key | default |")]
    assert table == [(f"`{k}`", f"`{default}`", what) for k, (default, what) in CONFIG.items()]


def test_the_key_of_skipped_functions_is_the_one_in_the_manual():
    assert f"`{SKIP_KEY}`" in MANUAL


def test_the_example_runs(capsys):
    model = model_of("g (float[1,4] x) => (float[1,4] y) { [a] a = Relu (x)  [y] y = Neg (a) }")
    (example,) = re.findall(r"```python\n(.*?)```", MANUAL, flags=re.DOTALL)
    scope: dict[str, Any] = {"model": model}
    exec(compile(example, "docs/passes.md", "exec"), scope)
    assert capsys.readouterr().out.splitlines()[1].startswith("clean ")
    assert not scope["result"].modified
    assert scope["drop_names"].info.required == ("InferType",)
    with PassContext(opt_level=1):
        assert scope["clean"](model).modified
    assert [node.name for node in model.graph] == [None, None]
    assert lookup("InferType").info.name == "InferType"
