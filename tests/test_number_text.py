"""Numbers are written in one way everywhere."""

import re
from pathlib import Path

import pytest

from opu_fuse.number_text import byte_size, counted, duration, percent, rounded, whole
from opu_fuse.resources import hw_specs_dir

PACKAGE = hw_specs_dir().parent / "opu_fuse"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (whole(1234567), "1,234,567"),
        (whole(2.6), "3"),
        (rounded(5140.595280), "5,141"),
        (rounded(0.194600), "0.1946"),
        (rounded(8.0), "8"),
        (rounded(0), "0"),
        (rounded(123456.7), "123,457"),
        (rounded(-0.00012345), "-0.0001234"),
        (rounded(float("inf")), "inf"),
        (percent(0.6555), "65.5 %"),
        (percent(1, 0), "100 %"),
        (counted(1, "group"), "1 group"),
        (counted(0, "group"), "0 groups"),
        (counted(1024, "group"), "1,024 groups"),
        (counted(2, "more copy", "more copies"), "2 more copies"),
        (byte_size(1), "1 byte"),
        (byte_size(999), "999 bytes"),
        (byte_size(10752), "10.8 kB"),
        (byte_size(3_300_000), "3.3 MB"),
        (byte_size(2_000_000_000), "2 GB"),
        (duration(5.4), "0:05"),
        (duration(125), "2:05"),
        (duration(3725), "1:02:05"),
    ],
)
def test_a_number_as_text(text, expected):
    assert text == expected


def test_nobody_else_separates_thousands_or_forms_plurals():
    own = re.compile(r":_\}|replace\(\"_\", \" \"\)|\{'s' \*|\"s\" if .* else \"\"")
    wrong = [
        f"{path.relative_to(PACKAGE)}:{n}"
        for folder in ("cli", "report", "exploring", "sweeping")
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if own.search(line)
    ]
    assert wrong == []
    assert Path(PACKAGE / "number_text.py").is_file()
