"""Typical mistakes in a spec: the first error is at the user's line, and its remedy works."""

import re

import pytest

from opu_fuse.hw.spec.load_spec import problems

HEAD = "extends: opu-tiny\nname: mine\n"
# mistake -> (line of the file, words of the first error, text that is replaced, what the remedy
# says instead); the head takes two lines.
MISTAKES = {
    "an edge back to the array": (
        "dataflow:\n  edges:\n    pool: [ipa]\n",
        (5, "edge pool -> ipa leads back to the array"),
        ("    pool: [ipa]\n", "    pool: []\n"),
    ),
    "an edge back before the array": (
        "dataflow:\n  edges:\n    compare: [pool, pad]\n",
        (5, "edge compare -> pad leads back to the array"),
        (", pad]", "]"),
    ),
    "an inherited module taken away": (
        "dataflow:\n  modules:\n    pool: null\n",
        (5, "module 'pool' does not exist (`dataflow.edges.add.1` is inherited)"),
        ("    pool: null\n", "    pool: {}\n"),
    ),
    "a module before the array without its buffer": (
        "dataflow:\n  edges: {concat: [m, pad], m: [pad]}\n  modules:\n"
        + "    m: {kind: multiplier, operand: per_channel, bypass: true}\n",
        (6, "add `buffers.pre: {words: 64, banks: 2}`"),
        ("dataflow:", "buffers: {pre: {words: 64, banks: 2}}\ndataflow:"),
    ),
    "a table without its buffer": (
        "dataflow:\n  modules:\n    t: {kind: table, exit: true}\n  edges: {compare: [pool, t]}\n",
        (5, "add `buffers.table: {words: 512, banks: 2}`"),
        ("dataflow:", "buffers: {table: {words: 512, banks: 2}}\ndataflow:"),
    ),
    "a buffer that nobody uses": (
        "buffers:\n  table: {words: 512, banks: 2}\n",
        (4, "set `table: null`"),
        ("{words: 512, banks: 2}", "null"),
    ),
    "an edge to an operator": (
        "dataflow:\n  edges:\n    add: [relu]\n",
        (5, "('relu' runs on compare)"),
        ("[relu]", "[compare, pool, res_add]"),
    ),
    "a kind in other words": (
        "dataflow:\n  modules:\n    m: {kind: activation, exit: true}\n"
        + "  edges: {pool: [compare, m]}\n",
        (5, "('activation' runs on comparator)"),
        ("activation", "comparator"),
    ),
    "a list that leaves out inherited edges": (
        "dataflow:\n  modules:\n    u: {kind: upsample, exit: true}\n  edges:\n    add: [u]\n",
        (7, "keep compare, pool, res_add in `dataflow.edges.add`: a list replaces the inherited"),
        ("    add: [u]\n", "    add: [u, compare, pool, res_add]\n"),
    ),
    "a number in quotes": (
        'buffers:\n  feature: {words: "512"}\n',
        (4, "is text, not a number; remove the quotes: write 512"),
        ('"512"', "512"),
    ),
    "yes for true": (
        "dataflow:\n  modules:\n    compare: {bypass: yes}\n",
        (5, "is neither true nor false; write true"),
        ("yes", "true"),
    ),
    "no for false": (
        "build: no\n",
        (3, "is neither true nor false; write false"),
        ("no", "false"),
    ),
    "a list without brackets": (
        "dataflow:\n  edges:\n    compare: pool\n",
        (5, "is no list; write [pool]"),
        ("compare: pool", "compare: [pool]"),
    ),
    "a kind without brackets": (
        "dataflow:\n  operators:\n    relu: comparator\n",
        (5, "is no list; write [comparator]"),
        ("relu: comparator", "relu: [comparator]"),
    ),
    "a tab": (
        "buffers:\n\tfeature: {words: 512}\n",
        (4, "indent with spaces"),
        ("\t", "  "),
    ),
    "a function of a table": (
        "dataflow:\n  operators:\n    sigmoid: [comparator]\n",
        (5, "it is a function, which a table makes"),
        ("    sigmoid: [comparator]\n", "    clip: [comparator]\n"),
    ),
    "words that do not divide": (
        "buffers:\n  feature: {words: 500, banks: 3}\n",
        (4, "use a multiple of 3: 498 or 501"),
        ("500", "498"),
    ),
    "an unknown key": (
        "buffer:\n  feature: {words: 512}\n",
        (3, "did you mean 'buffers'?"),
        ("buffer:", "buffers:"),
    ),
    "an unknown kind": (
        "dataflow:\n  modules:\n    compare: {kind: comparater}\n",
        (5, "did you mean 'comparator'?"),
        ("comparater", "comparator"),
    ),
    "an edge to nowhere": (
        "dataflow:\n  edges:\n    compare: [pool, res_ad]\n",
        (5, "did you mean 'res_add'?"),
        ("res_ad]", "res_add]"),
    ),
    "an edge from nowhere": (
        "dataflow:\n  edges:\n    compar: [pool]\n",
        (5, "did you mean 'compare'?"),
        ("compar:", "compare:"),
    ),
    "an edge to itself": (
        "dataflow:\n  edges:\n    pool: [pool, res_add]\n",
        (5, "module 'pool' feeds itself; remove the edge"),
        ("pool, res", "res"),
    ),
    "an edge twice": (
        "dataflow:\n  edges:\n    pool: [res_add, res_add]\n",
        (5, "appears twice; remove one"),
        ("res_add, res", "res"),
    ),
    "an unreachable module": (
        "dataflow:\n  modules:\n    more: {kind: comparator, exit: true}\n",
        (5, "add an edge that leads to it"),
        ("exit: true}\n", "exit: true}\n  edges: {pool: [compare, res_add, more]}\n"),
    ),
    "no exit": (
        "dataflow:\n  modules:\n    more: {kind: comparator}\n  edges: {pool: [res_add, more]}\n",
        (5, "set `exit: true` on it"),
        ("comparator}", "comparator, exit: true}"),
    ),
    "an adder without its operand": (
        "dataflow:\n  modules:\n    res_add: {operand: null}\n",
        (5, "say `operand: full`"),
        ("operand: null", "operand: full"),
    ),
    "an operand of a comparator": (
        "dataflow:\n  modules:\n    compare: {operand: full}\n",
        (5, "has no second operand; remove `operand`"),
        ("{operand: full}", "{}"),
    ),
    "an operator on a module that cannot": (
        "dataflow:\n  operators:\n    relu: [pool]\n",
        (5, "kinds that can: "),
        ("[pool]", "[comparator]"),
    ),
    "an operator of an absent kind": (
        "dataflow:\n  operators:\n    table: [table]\n",
        (5, "but no module is of that kind; add such a module, or remove the kind"),
        ("    table: [table]\n", "    relu: [comparator]\n"),
    ),
    "an operator that is unknown": (
        "dataflow:\n  operators:\n    maxpool: [pool]\n",
        (5, "did you mean 'max_pool'?"),
        ("maxpool", "max_pool"),
    ),
    "a root that is no memory": (
        "dataflow:\n  root: ipa\n",
        (4, "start at a mem_rd module"),
        ("root: ipa", "root: concat"),
    ),
    "a domain twice": (
        "dataflow:\n  modules:\n    add: {domain: acc, domain_in: acc}\n",
        (5, "has `domain` and `domain_in`; keep one of them"),
        (", domain_in: acc", ""),
    ),
    "a mode that wastes the array": (
        "array:\n  modes:\n    - {ic: 8, oc: 8}\n",
        (5, "make ic x oc x px equal units x multipliers"),
        ("oc: 8", "oc: 4"),
    ),
    "a mode twice": (
        "array:\n  modes: [{ic: 8, oc: 4}, {ic: 8, oc: 4}]\n",
        (4, "appears twice; remove one"),
        (", {ic: 8, oc: 4}]", "]"),
    ),
    "a bus that AXI has not": (
        "dram: {bus_bytes: 24}\n",
        (3, "use 4 or 8"),
        ("24", "8"),
    ),
    "more bytes than the bus carries": (
        "dram: {bytes_per_cycle: 64}\n",
        (3, "use at most 16"),
        ("64", "16"),
    ),
    "a name in capitals": (
        "description: x\n# name below\n",
        (2, "use small letters, digits and hyphens, and begin with a letter"),
        ("name: Bad_Name", "name: bad-name"),
    ),
    "a key twice": (
        "build: true\nbuild: true\n",
        (4, "appears twice (first in line 3); remove one of them"),
        ("build: true\nbuild", "build"),
    ),
    "lanes that do not fit": (
        "post: {lanes: 3}\n",
        (3, "use 8"),
        ("lanes: 3", "lanes: 8"),
    ),
    "a limit beyond the instruction": (
        "dataflow: {modules: {pool: {limits: {window: 1000}}}}\n",
        (3, "use at most 255"),
        ("1000", "255"),
    ),
    "a dilated pool": (
        "dataflow: {modules: {pool: {limits: {dilation: 2}}}}\n",
        (3, "set limits.dilation to 1"),
        ("dilation: 2", "dilation: 1"),
    ),
    "a tap": (
        "dataflow: {modules: {compare: {tap: true}}}\n",
        (3, "a pass stores one value; remove it"),
        ("{tap: true}", "{}"),
    ),
    "too few words": (
        "buffers:\n  weight: {words: 8}\n",
        (4, "use at least "),
        ("words: 8", "words: 256"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_first_error_is_at_the_line_of_the_mistake_and_its_remedy_works(mistake, tmp_path):
    text, (line, words), (wrong, right) = MISTAKES[mistake]
    head = HEAD.replace("name: mine", wrong) if wrong.startswith("name:") else HEAD
    path = tmp_path / "mine.yaml"
    path.write_text(head + text)
    errors = problems(path)
    assert errors[0].where == f"{path}:{line}", errors
    assert words in f"{errors[0].what}; {errors[0].help}"
    assert not any("opu-tiny" in error.where for error in errors), errors
    assert not re.search(r"should be|pattern|pydantic", errors[0].what)
    whole = head + text
    assert wrong in whole
    path.write_text(whole.replace(wrong, right, 1))
    assert problems(path) == ()


def test_the_table_holds_forty_mistakes():
    assert len(MISTAKES) >= 40


def test_a_domain_of_a_child_takes_the_place_of_inherited_ones(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{HEAD}dataflow: {{modules: {{add: {{domain: acc}}}}}}\n")
    assert problems(path) == ()


def test_limits_that_are_left_out_are_those_of_the_rtl(tmp_path):
    path = tmp_path / "mine.yaml"
    flow = "modules: {pool2: {kind: pool, exit: true}}, edges: {compare: [pool, res_add, pool2]}"
    path.write_text(f"{HEAD}dataflow: {{{flow}}}\n")
    assert problems(path) == ()
