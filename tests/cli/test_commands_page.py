"""docs/commands.md: generated from the help texts, complete, with an example for each verb."""

import re

import pytest

from opu_fuse.cli.commands_page import BEFORE, PAGE, commands_page, verb_parts
from opu_fuse.errors import UserError
from opu_fuse.resources import hw_specs_dir

TEXT = (hw_specs_dir().parent / PAGE).read_text(encoding="utf-8")
PARTS = dict(verb_parts())
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", TEXT, flags=re.MULTILINE))
DESCRIBED_ELSEWHERE = {"sweep", "explore", "zoo list", "hw sim"}
"""Their pages are walked through, their output is a list that another page explains, or they run
until Ctrl-C.
"""


def test_the_page_is_current():
    assert commands_page(TEXT) == TEXT, "run `make generate` and commit what it writes"


@pytest.mark.parametrize("verb", [verb for verb in PARTS if verb != BEFORE])
def test_a_verb_has_its_section_with_an_example(verb):
    _, _, by_hand = SECTIONS[verb].partition("<!-- end -->")
    assert f"$ opu-fuse {verb} " in f"{by_hand} ".replace("\n", " ") or (
        verb in DESCRIBED_ELSEWHERE and re.search(r"\]\([\w-]+\.md", by_hand)
    )


def test_a_part_tells_purpose_usage_and_options():
    part = PARTS["hw draw"]
    assert part.startswith(
        "Draw the pipeline of a machine.\n\n```\nopu-fuse hw draw SPEC [OPTIONS]\n"
    )
    assert "| `SPEC` | name from `hw list`, or path of a YAML file | required |" in part
    assert "| `-o`, `--output F.svg` | .svg or .dot file | text on the terminal |" in part


def test_a_row_tells_choices_ranges_and_repetition():
    rows = PARTS["compile"].splitlines()
    assert any(r"`--layout auto\|nchw\|nhwc` |" in row and "| `auto` |" in row for row in rows)
    assert any("`--keep-float NODE`" in row and "may be repeated" in row for row in rows)
    assert any("`-O LEVEL`" in row and "0 to 3" in row for row in rows)
    assert any("`--latency N`" in row and "0 to 65535" in row for row in PARTS["run"].splitlines())


def test_every_option_of_every_verb_is_explained():
    """With a placeholder for its value, in words that begin alike and end without a full stop."""
    rows = [
        (verb, *re.split(r" (?<!\\)\| ", row.strip("| ")))
        for verb, part in PARTS.items()
        for row in part.splitlines()
        if row.startswith("| `")
    ]
    assert len(rows) > 90
    for verb, named, meaning, _ in rows:
        assert "None" not in named, (verb, named)
        assert meaning
        assert not meaning.endswith("."), (verb, named, meaning)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (TEXT.replace("<!-- generated: run -->", "<!-- generated: runs -->"), "run, runs"),
        (TEXT.replace("<!-- generated: run -->\n", ""), "run"),
        (TEXT + "<!-- generated: asm -->\n<!-- end -->\n", "asm"),
    ],
)
def test_a_page_without_a_verb_is_refused(text, wrong):
    with pytest.raises(UserError, match=rf"parts differ from the verbs: .*\b{wrong}"):
        commands_page(text)
