"""docs/tutorial.md, done as written: its commands in order, what they print beside what it shows.

A block `console` holds commands (`$ …`) and what they print, `pycon` a Python session, `yaml FILE`
what to write into a file. `console rtl` runs in the RTL tier only. `…` stands for anything, on a
line of its own for any lines.
"""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from opu_fuse.cli import console
from opu_fuse.resources import hw_specs_dir

ROOT = hw_specs_dir().parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(.+)\n((?:.*\n)*?)```$", TUTORIAL, flags=re.MULTILINE)
NOT_HERE = {". .venv/bin/activate"}  # the tests run in an environment already


def pattern(shown):
    """The regular expression for what a block shows."""
    lines = ["(?:.*\n)*" if line == "…" else f"{line_pattern(line)}\n" for line in shown]
    return "".join(lines)


def line_pattern(line):
    """Columns of tables are as wide as what they hold; …, what was left out."""
    words = r"\s+".join(re.escape(word) for word in line.split())
    indent = re.escape(line[: len(line) - len(line.lstrip())])
    return indent + words.replace("…", ".*") + r"\s*?"


def follow(command, opu_fuse):
    """Output and exit code of a command."""
    program, *arguments = shlex.split(command)
    if program == "opu-fuse":
        called = opu_fuse(*arguments)
        errors = [e for e in called.err.splitlines(keepends=True) if e.startswith("error: ")]
        return "".join([called.out, *errors]), called.code
    if command not in NOT_HERE:
        assert (program, arguments[0]) == ("mkdir", "-p"), command
        Path(arguments[1]).mkdir(parents=True)
    return "", 0


def work_through(opu_fuse, *, rtl):
    """Follow the whole text; without rtl the blocks of hardware are left out."""
    session = {}
    for kind, text in BLOCKS:
        name, _, option = kind.partition(" ")
        if name == "yaml":
            Path(option).write_text(text, encoding="utf-8")
        elif name == "pycon":
            example = doctest.DocTestParser().get_doctest(text, session, "tutorial", None, None)
            assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
            session = example.globs
        elif option != "rtl" or rtl:
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                printed, code = follow(command, opu_fuse)
                assert code == int(any(s.startswith("error: ") for s in shown)), command + printed
                if shown:
                    assert re.fullmatch(pattern(shown), printed), f"{command}\n{printed}"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder to work in that has the examples, and a terminal of 160 columns."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.out, "width", 160)
    monkeypatch.setattr(console.err, "width", 160)


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_the_tutorial_can_be_followed(opu_fuse):
    work_through(opu_fuse, rtl=False)


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_the_tutorial_can_be_followed_to_the_hardware(opu_fuse):
    work_through(opu_fuse, rtl=True)
    assert Path("out/digits.fst").stat().st_size > 0


def test_signals_of_the_tutorial_are_in_the_hardware():
    sources = "".join(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("rtl_sim/**/*.sv")))
    table = TUTORIAL[TUTORIAL.index("| signal |") : TUTORIAL.index("## 9.")]
    rows = [row.split("|")[1] for row in table.splitlines()[2:] if row.startswith("|")]
    names = {part for row in rows for part in re.findall(r"[a-z_]{3,}", row)}
    assert len(names) > 10
    assert [n for n in sorted(names) if not re.search(rf"\b{n}\b", sources)] == []
