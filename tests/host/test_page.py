"""docs/host-kernels.md says what the code does."""

import re
from pathlib import Path

from opu_fuse.host.build.linalg.chain import MAX_PAYLOAD
from opu_fuse.host.build.linalg.pointwise import POINTWISE
from opu_fuse.host.build.linalg.rules import MESSAGES
from opu_fuse.host.build.linalg.views import VIEWS
from opu_fuse.host.run.generic import BLOCK_ELEMENTS

PAGE = (Path(__file__).parents[2] / "docs" / "host-kernels.md").read_text(encoding="utf-8")


def test_the_page_lists_every_rule_with_its_message_in_order():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert dict(rows) == dict(MESSAGES)
    assert [rule for rule, _ in rows] == list(MESSAGES)


def test_the_page_lists_every_operator():
    table = PAGE.partition("| operator | types | note |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    listed = [name for cell in cells for name in re.findall(r"[A-Z]\w+", cell)]
    exact = [name for name, p in POINTWISE.items() if p.exact]
    assert sorted(listed) == sorted([*exact, *VIEWS])
    rest = PAGE.partition("Not taken")[2].partition("`exact=False`")[0]
    assert all(name in rest for name, p in POINTWISE.items() if not p.exact)


def test_the_page_states_the_limits():
    assert f"`at_most_ops({MAX_PAYLOAD})`" in PAGE
    assert f"about {BLOCK_ELEMENTS:_} elements".replace("_", " ") in PAGE
