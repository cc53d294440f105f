"""What the RTL can build and what it cannot: each limit has its message, and holds only for
machines that shall be built.
"""

import pytest
import yaml

from opu_fuse.hw.isa.table import ORDER_STAGES
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, problems

HEAD = "extends: opu-tiny\nname: mine\n"

NOT_BUILT = {
    "all products in tables": (
        "array: {table_terms: 4}\n",
        "mine.yaml:3: the RTL cannot build this: 4 of 4 products of a unit in tables; use 2,",
    ),
    "half a pair of products in tables": (
        "array: {units: 2, multipliers: 8, table_terms: 3, modes: [{ic: 8, oc: 2}]}\n",
        "3 of 8 products of a unit in tables; use an even number from 2 to 6",
    ),
    "products in tables before those in slices": (
        "word_channels: 64\npost: {lanes: 64}\ndram: {bus_bytes: 8}\n"
        + "array: {units: 8, multipliers: 64, table_terms: 30, modes: [{ic: 64, oc: 8}]}\n",
        "30 of 64 products of a unit in tables; use an even number from 32 to 62",
    ),
    "products in tables of a unit that has two": (
        "array: {units: 8, multipliers: 2, table_terms: 2, modes: [{ic: 4, oc: 4}]}\n",
        "2 of 2 products of a unit in tables; leave table_terms out",
    ),
    "two cycles for windows that it does not have": (
        "array: {window_cycles: 2}\n",
        "mine.yaml:3: the RTL cannot build this: windows of two cycles on an array without "
        + "windows; add `depthwise: true`",
    ),
    "windows of two cycles in several parts": (
        "array: {units: 4, depthwise: true, window_cycles: 2, modes: [{ic: 4, oc: 4}]}\n",
        "windows of two cycles with 4 units and words of 8 channels; use 8 units, or",
    ),
    "windows of two cycles without pairs": (
        "word_channels: 24\npost: {lanes: 24}\n"
        + "array: {units: 24, multipliers: 3, depthwise: true, window_cycles: 2,\n"
        + "  modes: [{ic: 3, oc: 24}]}\n",
        "windows of two cycles with 24 units x 3, which form no pairs; use an even number",
    ),
    "three pixels per cycle": (
        "array: {units: 6, multipliers: 4, modes: [{ic: 4, oc: 2, px: 3}]}\n",
        "mine.yaml:3: the RTL cannot build this: mode 0: 3 pixels per cycle; use 1, 2 or 4",
    ),
    "eight pixels per cycle": (
        "array: {modes: [{ic: 4, oc: 1, px: 8}]}\n",
        "mode 0: 8 pixels per cycle; use 1, 2 or 4",
    ),
    "pixels of more channels than a word": (
        "array: {modes: [{ic: 8, oc: 2, px: 2}]}\n",
        "mode 0: 2 pixels of 8 and 2 channels exceed a word of 8; choose narrower modes",
    ),
    "pixels that do not share the units": (
        "array: {units: 2, multipliers: 4, modes: [{ic: 2, oc: 1, px: 4}]}\n",
        "mode 0: 4 pixels of 2 and 1 channels exceed",
    ),
    "words of half as many lanes as a parameter has bytes": (
        "word_channels: 4\npost: {lanes: 4}\ndram: {bus_bytes: 4}\n"
        + "array: {modes: [{ic: 4, oc: 4, px: 2}, {ic: 4, oc: 8}]}\n",
        "mine.yaml:3: the RTL cannot build this: words of 4 channels, whose parameters fill no",
    ),
    "several pixels in a padded word": (
        "word_channels: 12\npost: {lanes: 12}\nbuffers: {weight: {words: 512}}\n"
        + "array: {units: 6, multipliers: 4, modes: [{ic: 4, oc: 3, px: 2}]}\n",
        "mode 0: 2 pixels per cycle in words of 12 channels; use px: 1, or a power of two",
    ),
    "several pixels per cycle only": (
        "array: {modes: [{ic: 4, oc: 4, px: 2}]}\n",
        "mine.yaml:3: the RTL cannot build this: no mode of one pixel per cycle; add one that has",
    ),
    "a mode between adder trees": (
        "array: {modes: [{ic: 2, oc: 16}]}\n",
        "mode 0: ic 2 is not 4 multipliers times a power of two",
    ),
    "more output channels than a word": (
        "array: {modes: [{ic: 2, oc: 16}]}\n",
        "mode 0: oc 16 does not divide a word of 8 channels",
    ),
    "more input channels than a word": (
        "array: {modes: [{ic: 16, oc: 2}]}\n",
        "mode 0: ic 16 does not divide a word of 8 channels",
    ),
    "output channels of uneven groups": (
        "word_channels: 12\nbuffers: {weight: {words: 512}}\npost: {lanes: 12}\n"
        + "array: {units: 6, multipliers: 4, modes: [{ic: 4, oc: 6}, {ic: 6, oc: 4}]}\n",
        "mode 0: oc 6 is no multiple of the smallest oc 4",
    ),
    "depthwise parts that do not divide a word": (
        "array: {units: 6, multipliers: 4, modes: [{ic: 4, oc: 6}], depthwise: true}\n",
        "depthwise with 6 units and words of 8 channels; choose units that divide a word",
    ),
    "a bus wider than a word": (
        "dram: {bus_bytes: 16}\n",
        "bus of 16 bytes is wider than a feature word (8 bytes)",
    ),
    "weight words that beats cannot fill": (
        "buffers: {weight: {width: 4, words: 512}}\n",
        "weight words of 4 bytes are no power-of-two multiple of the 8-byte bus",
    ),
    "weight rows of broken words": (
        "buffers: {weight: {width: 64}}\n",
        "a weight row of 32 bytes is no whole number of 64-byte words",
    ),
    "short weight rows of broken words": (
        "buffers: {weight: {width: 32}}\narray: {modes: [{ic: 8, oc: 4}, {ic: 4, oc: 4, px: 2}]}\n",
        "a weight row of 16 bytes is no whole number of 32-byte words",
    ),
    "three partial-sum banks": (
        "buffers: {psum: {words: 126, banks: 3}}\n",
        "partial sums of 126 words, banks: 3; use an even number of words and 1 or 2 banks",
    ),
    "half a partial-sum memory": (
        "buffers: {psum: {words: 127, banks: 1}}\n",
        "partial sums of 127 words, banks: 1; use an even number",
    ),
    "a narrow post chain": ("post: {lanes: 4}\n", "4 post lanes for words of 8 channels; use 8"),
    "a wide unit in it": (
        "post: {residual_lanes: 16}\n",
        "16 residual lanes for 8 post lanes; use 8",
    ),
    "tables for what are shifts": (
        "post: {residual_tables: true}\nnumeric: {multiplier_bits: 0}\n",
        "tables for the residual unit, and powers of two, which are shifts; leave residual_tables",
    ),
    "a kind without datapath": (
        "dataflow:\n  modules: {late: {kind: nop, exit: true}}\n"
        + "  edges: {res_add: [compare, pool, late]}\n",
        "mine.yaml:4: the RTL cannot build this: module 'late': no nop at this position; keep to",
    ),
    "pooling in front of the array": (
        "dataflow:\n  modules: {early: {kind: pool}}\n"
        + "  edges: {concat: [early], early: [pad]}\n",
        "mine.yaml:4: the RTL cannot build this: module 'early': no pool at this position",
    ),
    "two paddings in front of the array": (
        "dataflow:\n  modules: {pad2: {kind: pad, bypass: true}}\n"
        + "  edges: {concat: [pad, pad2], pad2: [ipa]}\n",
        "'pad' and 'pad2' are both pad, the RTL has one",
    ),
    "a unit of two kinds": (
        "dataflow: {modules: {compare: {unit: one}, pool: {unit: one}}}\n",
        "modules of kinds comparator and pool share no unit ('one'); give them two",
    ),
    "a unit before the array": (
        "dataflow: {modules: {pad: {unit: one}}}\n",
        "module 'pad' is no stage of the post chain; remove `unit`",
    ),
    "thirteen stages": (
        "dataflow:\n  modules: {"
        + ", ".join(f"c{i}: {{kind: comparator, exit: true}}" for i in range(10))
        + "}\n  edges: {compare: ["
        + ", ".join(f"c{i}" for i in range(10))
        + "]}\n",
        "13 modules in the post chain, at most 12; remove some",
    ),
    "an adder on activations": (
        "dataflow: {modules: {add: {domain_in: act, domain_out: act}}}\n",
        "module 'add' (adder) has output domain act; set domain: acc",
    ),
    "accumulators behind the array's own adders": (
        "dataflow: {modules: {compare: {domain_in: acc, domain_out: acc}}}\n",
        "module 'compare' (comparator) has output domain acc; set domain: act",
    ),
    "a bias per tensor": (
        "dataflow: {modules: {add: {operand: per_tensor}}}\n",
        "module 'add' (adder) has operand per_tensor; say `operand: per_channel`",
    ),
    "windows of windows": (
        "dataflow: {modules: {pool: {uses: 2}}}\n",
        "module 'pool' is used 2 times per pass, a pass pools once; use 1",
    ),
    "two arrays": (
        "dataflow: {modules: {ipa: {uses: 2}}}\n",
        "module 'ipa' is used 2 times per pass, there is one ipa; use 1",
    ),
    "a shared unit used twice": (
        "dataflow: {modules: {compare: {uses: 2, unit: one}}}\n",
        "module 'compare' is used 2 times per pass and shares unit 'one', of which a pass uses one",
    ),
    "stages used too often": (
        "dataflow: {modules: {compare: {uses: 11}}}\n",
        "mine.yaml:3: the RTL cannot build this: 13 modules in the post chain, at most 12 (`",
    ),
    "a tap": (
        "dataflow: {modules: {compare: {tap: true}}}\n",
        "module 'compare' has a tap, a pass stores one value; remove it",
    ),
    "padding in front of a channel affine": (
        "buffers: {pre: {words: 16}}\ndataflow:\n"
        + "  modules: {shift: {kind: adder, operand: per_channel, bypass: true}}\n"
        + "  edges: {pad: [ipa, shift], shift: [ipa]}\n",
        "edge pad -> shift leads from a pad to the pre chain, which padding does not pass; remove",
    ),
    "dilated pooling": (
        "dataflow: {modules: {pool: {limits: {dilation: 2}}}}\n",
        "module 'pool': pooling windows are not dilated",
    ),
    "an edge against the pipeline": (
        "dataflow: {edges: {res_add: [upsample], upsample: [pool]}, modules: "
        + "{upsample: {kind: upsample, exit: true}}}\n",
        "edge upsample -> pool violates the order of the RTL (memory, pre chain, pad, ipa, ",
    ),
    "modules before the array without parameters": (
        "dataflow:\n  modules: {first: {kind: multiplier, operand: per_channel, bypass: true}}\n"
        + "  edges: {concat: [first], first: [pad]}\n",
        "no pre buffer for the constants of first; add `buffers.pre: {words: 64, banks: 2}`",
    ),
    "parameters for no module before the array": (
        "buffers: {pre: {words: 64}}\n",
        "mine.yaml:3: the RTL cannot build this: buffer pre, and no module that ",
    ),
    "table modules without tables": (
        "dataflow:\n  modules: {lut: {kind: table, exit: true}}\n"
        + "  edges: {res_add: [compare, pool, lut]}\n",
        "no table buffer for the constants of lut; add `buffers.table: {words: 512, banks: 2}`",
    ),
    "tables for no module": (
        "buffers: {table: {words: 512}}\n",
        "mine.yaml:3: the RTL cannot build this: buffer table, and no module ",
    ),
    "a gate behind constants before the array": (
        "buffers: {pre: {words: 16}}\ndataflow:\n  modules:\n"
        + "    scale: {kind: multiplier, operand: per_channel, bypass: true}\n"
        + "    gate: {kind: se, operand: per_channel, bypass: true}\n"
        + "  edges: {concat: [scale], scale: [gate], gate: [pad]}\n"
        + "  operators: {multiply: [se]}\n",
        "mine.yaml:7: the RTL cannot build this: module 'gate' (se) is before the array, where "
        + "a pass can reach 2 units; leave out edges between it and multipliers",
    ),
    "a whole map as a gate before the array": (
        "buffers: {pre: {words: 16}}\ndataflow:\n"
        + "  modules: {gate: {kind: se, operand: full, bypass: true}}\n"
        + "  edges: {concat: [gate], gate: [pad]}\n  operators: {multiply: [se]}\n",
        "module 'gate' (se) has operand full; say `operand: per_channel`",
    ),
    "averages on the array": (
        "dataflow: {operators: {avg_pool: [ipa]}}\n",
        "avg_pool mapped to the ipa; map it to pool",
    ),
    "activations by table": (
        "dataflow:\n  modules: {lut: {kind: table, exit: true}}\n"
        + "  edges: {res_add: [compare, pool, lut]}\n  operators: {relu: [table, comparator]}\n"
        + "buffers: {table: {words: 512}}\n",
        "mine.yaml:6: the RTL cannot build this: relu mapped to the table; map it to comparator",
    ),
}

BUILT = {
    "two pixels per cycle": "array: {modes: [{ic: 8, oc: 4}, {ic: 4, oc: 4, px: 2}]}\n",
    "four pixels per cycle": (
        "array: {multipliers: 2, modes: [{ic: 8, oc: 2}, {ic: 2, oc: 2, px: 4}]}\n"
        "buffers: {weight: {width: 4}}\ndram: {bus_bytes: 4}\n"
    ),
    "depthwise windows": "array: {depthwise: true}\n",
    "one partial-sum bank": "buffers: {psum: {banks: 1}, output: {banks: 1}}\n",
    "powers of two only": "numeric: {multiplier_bits: 0}\n",
    "concatenation": "dataflow: {operators: {concat: [mem_rd]}}\n",
    "a multiplier behind the array": (
        "dataflow:\n  modules: {mul: {kind: multiplier, domain: acc, operand: per_channel}}\n"
        "  edges: {ipa: [mul], mul: [add]}\n"
    ),
    "tables, products and upsampling": (
        "buffers: {table: {words: 256, banks: 1}}\n"
        "dataflow:\n  modules:\n    lut: {kind: table, exit: true}\n"
        "    res_add: {unit: sums}\n"
        "    se: {kind: se, operand: full, unit: sums, exit: true}\n"
        "    up: {kind: upsample, exit: true}\n"
        "  edges: {res_add: [compare, pool, lut], lut: [se], se: [up, pool]}\n"
        "  operators: {table: [table], multiply: [se], upsample: [upsample]}\n"
    ),
    "a pre chain in any order": (
        "buffers: {pre: {words: 16}}\n"
        "dataflow:\n  modules:\n    first: {kind: comparator, bypass: true}\n"
        "    second: {kind: multiplier, operand: per_channel, bypass: true}\n"
        "    third: {kind: adder, operand: per_channel, bypass: true}\n"
        "  edges: {concat: [first], first: [second], second: [third], third: [pad]}\n"
    ),
    "a gate beside constants before the array": (
        "buffers: {pre: {words: 16}}\n"
        "dataflow:\n  modules:\n    clamp: {kind: comparator, bypass: true}\n"
        "    scale: {kind: multiplier, operand: per_channel, bypass: true}\n"
        "    gate: {kind: se, operand: per_channel, bypass: true}\n"
        "  edges: {concat: [scale, gate], scale: [clamp], gate: [clamp], clamp: [pad]}\n"
        "  operators: {multiply: [se]}\n"
    ),
    "pooling of which nobody says how it is dilated": (
        "dataflow: {modules: {pool: {limits: {dilation: null}}}}\n"
    ),
    "padding in front of the pool": (
        "dataflow:\n  modules: {pool_pad: {kind: pad, bypass: true, exit: true}}\n"
        "  edges: {add: [compare, pool_pad, res_add], pool_pad: [pool]}\n"
    ),
}


@pytest.mark.parametrize("case", NOT_BUILT)
def test_what_the_rtl_lacks_is_refused_only_where_it_shall_be_built(case, tmp_path):
    text, expected = NOT_BUILT[case]
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + text)
    messages = [str(p).replace(f"{tmp_path}/", "") for p in problems(path)]
    assert any(expected in message for message in messages), messages
    assert all("build: false" in m for m in messages if "the RTL cannot build" in m)

    path.write_text(HEAD + "build: false\n" + text)
    assert not any("RTL cannot build" in str(p) for p in problems(path))


def test_a_gate_without_a_pre_buffer_is_one_mistake(tmp_path):
    path = tmp_path / "mine.yaml"
    gate = "modules: {gate: {kind: se, operand: per_channel, bypass: true}}"
    edges = "edges: {concat: [gate, pad], gate: [pad]}"
    path.write_text(f"{HEAD}dataflow:\n  {gate}\n  {edges}\n  operators: {{multiply: [se]}}\n")
    (found,) = problems(path)
    assert "no pre buffer for the constants of gate" in found.what


@pytest.mark.parametrize("case", BUILT)
def test_what_the_rtl_builds_is_not_refused(case, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + BUILT[case])
    assert load_hw(path).build


@pytest.mark.parametrize(
    ("kinds", "uses", "units"),
    [("mamama", 1, 6), ("mcmcac", 1, 6), ("mcc", 2, 5), ("ccc", 2, 6), ("mc", 2, 3), ("m", 2, 1)],
)
def test_the_longest_way_before_the_array_is_counted_at_once(kinds, uses, units):
    """Every module leads to every other one: there are more ways than anybody could walk."""
    tree = load_hw("opu-tiny").to_tree()
    flow, names = tree["dataflow"], [f"{kind}{i}" for i, kind in enumerate(kinds)]
    for name in names:
        kind = {"m": "multiplier", "a": "adder", "c": "comparator"}[name[0]]
        operand = None if kind == "comparator" else "per_channel"
        flow["modules"][name] = {"kind": kind, "bypass": True, "uses": uses, "operand": operand}
        flow["edges"][name] = [*(n for n in names if n != name), "pad"]
    flow["edges"]["concat"] = [*names, "pad"]
    tree["buffers"]["pre"] = {"words": 96, "banks": 2}
    assert chain_of(load_hw_text(yaml.safe_dump(tree))).pre_units == units


def test_a_module_has_no_more_stages_than_a_pass():
    """A spec may name any number of uses; a stage for each would fill the memory."""
    tree = load_hw("opu-tiny").to_tree()
    tree["build"] = False
    tree["dataflow"]["modules"]["compare"]["uses"] = 100_000
    modules = chain_of(load_hw_text(yaml.safe_dump(tree))).modules
    assert sum(m.module == "compare" for m in modules) == ORDER_STAGES
