"""A well-formed spec that makes no machine is refused with file, line and a way out."""

import pytest

from opu_fuse.errors import SpecError
from opu_fuse.hw.load import load_hw, problems

HEAD = "extends: opu-tiny\nname: mine\n"


def has(messages, start, inside=""):
    """One line that contains both texts."""
    return any(start in m and inside in m and "\n" not in m for m in messages)


GRAPH = {
    "an edge to a missing module": (
        "dataflow:\n  edges:\n    add: [compare, pol, res_add]\n",
        "mine.yaml:5: edge add -> pol: module 'pol' does not exist; modules: concat, ",
        "did you mean 'pool'",
    ),
    "an edge from a missing module": (
        "dataflow:\n  edges:\n    sigmoid: [pool]\n",
        "mine.yaml:5: edge from module 'sigmoid' does not exist",
        "",
    ),
    "a module that feeds itself": (
        "dataflow:\n  edges:\n    pool: [pool, compare, res_add]\n",
        "mine.yaml:5: module 'pool' feeds itself",
        "",
    ),
    "an edge twice": (
        "dataflow:\n  edges:\n    ipa: [add, add]\n",
        "mine.yaml:5: edge ipa -> add stands twice",
        "",
    ),
    "a missing root": (
        "dataflow: {root: conkat}\n",
        "mine.yaml:3: root 'conkat' does not exist",
        "did you mean 'concat'",
    ),
    "a root that is no memory": (
        "dataflow: {root: pad}\n",
        "mine.yaml:3: root 'pad' is a pad, not a mem_rd",
        "",
    ),
    "an unreachable module": (
        "build: false\ndataflow:\n  modules:\n    late: {kind: table, exit: true}\n",
        "mine.yaml:6: module 'late' cannot be reached from the root 'concat'",
        "add an edge",
    ),
    "a dead end": (
        "build: false\ndataflow:\n  modules:\n    late: {kind: table}\n"
        + "  edges: {res_add: [compare, pool, late]}\n",
        "mine.yaml:6: no exit can be reached from module 'late'",
        "exit: true",
    ),
    "an unknown operator": (
        "dataflow:\n  operators:\n    maxpool: [pool]\n",
        "mine.yaml:5: unknown operator 'maxpool'",
        "did you mean 'max_pool'",
    ),
    "an operator mapped to an absent kind": (
        "dataflow:\n  operators:\n    relu: [comparator, table]\n",
        "mine.yaml:5: operator 'relu' is mapped to table, but no module is a table",
        "",
    ),
    "an operator mapped to nothing": (
        "dataflow:\n  operators:\n    relu: []\n",
        "mine.yaml:5: operator 'relu' has no module kind",
        "",
    ),
    "an operator on a module that cannot run it": (
        "dataflow:\n  operators:\n    conv: [pool]\n",
        "mine.yaml:5: a pool cannot run 'conv'; kinds that can: ipa",
        "",
    ),
    "a kind named twice": (
        "dataflow:\n  operators:\n    relu: [comparator, comparator]\n",
        "mine.yaml:5: operator 'relu' names comparator twice",
        "",
    ),
    "an array in the wrong domain": (
        "dataflow:\n  modules:\n    ipa: {domain_out: act}\n",
        "module 'ipa' (ipa) is act -> act; it must be act -> acc",
        "",
    ),
    "an acc module that never gets acc": (
        "dataflow:\n  modules:\n    pool: {domain_in: acc}\n"
        + "  edges: {add: [compare], compare: [pool, res_add], res_add: [pool]}\n",
        "module 'pool' takes acc, but no module that feeds it gives acc",
        "",
    ),
    "a bias adder without operand": (
        "dataflow:\n  modules:\n    add: {operand: null}\n",
        "module 'add' (adder) has operand none; say `operand: per_channel`",
        "",
    ),
    "a residual adder with a channel operand": (
        "dataflow:\n  modules:\n    res_add:\n      operand: per_channel\n",
        "mine.yaml:6: module 'res_add' (res_adder) has operand per_channel; say `operand: full`",
        "",
    ),
    "an operand where there is none": (
        "dataflow:\n  modules:\n    pool:\n      operand: full\n",
        "mine.yaml:6: module 'pool' (pool) has no second operand",
        "",
    ),
}

SIZES = {
    "a mode that does not use the array": (
        "array:\n  modes:\n  - {ic: 8, oc: 4}\n  - {ic: 8, oc: 8}\n",
        "mine.yaml:6: mode 1 (8 x 8 x 1) is 64 MAC per cycle, the array does 8 x 4 = 32",
        "",
    ),
    "a mode twice": (
        "array: {modes: [{ic: 8, oc: 4}, {ic: 8, oc: 4}]}\n",
        "mine.yaml:3: mode 1 stands twice",
        "",
    ),
    "a buffer too small for the smallest legal tile": (
        "buffers:\n  weight: {words: 8}\n",
        "mine.yaml:4: weight buffer too small for the smallest legal tile: one kernel position of ",
        "one channel block takes 8 words, a bank holds 4; use at least 16 words",
    ),
    "a parameter buffer below one block": (
        "buffers:\n  param: {words: 8}\n",
        "mine.yaml:4: param buffer too small for the smallest legal tile: ",
        "one channel block takes 8 words",
    ),
    "banks that do not divide a buffer": (
        "buffers:\n  output: {words: 129}\n",
        "mine.yaml:4: 129 output words do not divide into 2 banks",
        "",
    ),
    "a buffer that instructions cannot address": (
        "buffers:\n  feature: {words: 8388608}\n",
        "mine.yaml:4: encoding too narrow: 8388608 feature words need 23 address bits, ",
        "a register has 22",
    ),
    "a limit that instructions cannot carry": (
        "dataflow:\n  modules:\n    pool:\n      limits: {window: 256}\n",
        "mine.yaml:6: encoding too narrow: window 256 needs 9 bits, an instruction holds 8; ",
        "use at most 255",
    ),
    "an average multiplier that instructions cannot carry": (
        "numeric: {average_bits: 17}\n",
        "mine.yaml:3: encoding too narrow: average_bits is 17, an instruction holds 16",
        "",
    ),
    "a multiplier that parameters cannot carry": (
        "numeric: {multiplier_bits: 17}\n",
        "mine.yaml:3: encoding too narrow: multiplier_bits is 17, an instruction holds 16",
        "",
    ),
    "more memory than addresses": (
        "dram: {capacity: 4294967297}\n",
        "mine.yaml:3: encoding too narrow: 4294967297 bytes of memory need ",
        "more than 32 address bits",
    ),
    "words wider than the alignment": (
        "word_channels: 65\n",
        "mine.yaml:3: a word of 65 channels takes 128 bytes, tensors are aligned to 64",
        "",
    ),
    "a bus that AXI has not": (
        "dram: {bus_bytes: 24}\n",
        "mine.yaml:3: bus of 24 bytes: AXI data widths are powers of two",
        "",
    ),
    "memory faster than its bus": (
        "dram: {bytes_per_cycle: 17}\n",
        "mine.yaml:3: 17 bytes per cycle exceed what reads and writes of a 8-byte bus carry",
        "",
    ),
}

NOT_BUILT = {
    "more than one pixel per cycle": (
        "array: {modes: [{ic: 4, oc: 4, px: 2}]}\n",
        "mine.yaml:3: the RTL cannot build this: mode 0: 2 pixels per cycle; use px: 1",
    ),
    "a mode between adder trees": (
        "array: {modes: [{ic: 2, oc: 16}]}\n",
        "mode 0: ic 2 is not 4 multipliers times a power of two",
    ),
    "more output channels than a word": (
        "array: {modes: [{ic: 2, oc: 16}]}\n",
        "mode 0: oc 16 does not divide a word of 8 channels",
    ),
    "output channels of uneven groups": (
        "word_channels: 12\nbuffers: {weight: {words: 512}}\npost: {lanes: 12}\n"
        + "array: {units: 6, multipliers: 4, modes: [{ic: 4, oc: 6}, {ic: 6, oc: 4}]}\n",
        "mode 0: oc 6 is no multiple of the smallest oc 4",
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
    "one partial-sum bank": ("buffers: {psum: {banks: 1}}\n", "1 partial-sum banks; use 2"),
    "a narrow post chain": ("post: {lanes: 4}\n", "4 post lanes for words of 8 channels"),
    "shifts without multipliers": ("numeric: {multiplier_bits: 0}\n", "multiplier_bits 0"),
    "a kind without datapath": (
        "dataflow:\n  modules: {lut: {kind: table, exit: true}}\n"
        + "  edges: {res_add: [compare, pool, lut]}\n",
        "mine.yaml:4: the RTL cannot build this: module 'lut': the RTL has no table",
    ),
    "two modules of a kind": (
        "dataflow:\n  modules: {relu2: {kind: comparator, exit: true}}\n"
        + "  edges: {res_add: [compare, pool, relu2]}\n",
        "'compare' and 'relu2' are both comparator, the RTL has one",
    ),
    "an adder on activations": (
        "dataflow: {modules: {add: {domain_in: act, domain_out: act}}}\n",
        "module 'add' (adder) gives act",
    ),
    "a bias per tensor": (
        "dataflow: {modules: {add: {operand: per_tensor}}}\n",
        "module 'add': the bias adder reads per_channel",
    ),
    "a module used twice per pass": (
        "dataflow: {modules: {pool: {uses: 2}}}\n",
        "module 'pool' is used 2 times per pass",
    ),
    "a tap": ("dataflow: {modules: {compare: {tap: true}}}\n", "module 'compare' has a tap"),
    "dilated pooling": (
        "dataflow: {modules: {pool: {limits: {dilation: 2}}}}\n",
        "module 'pool': pooling windows are not dilated",
    ),
    "an edge against the pipeline": (
        "dataflow: {edges: {add: [pad, compare, pool, res_add]}}\n",
        "mine.yaml:3: the RTL cannot build this: edge add -> pad runs against the order of the RTL",
    ),
    "concatenation": (
        "dataflow: {operators: {concat: [mem_rd]}}\n",
        "operator 'concat' on mem_rd; remove the line",
    ),
}


@pytest.mark.parametrize("case", GRAPH | SIZES)
def test_a_spec_that_makes_no_machine_is_refused(case, explain):
    text, start, inside = (GRAPH | SIZES)[case]
    messages = explain(HEAD + text)
    assert has(messages, start, inside), messages


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


def test_the_check_lists_every_mistake_and_loading_counts_the_rest(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "post: {lanes: 4}\nbuffers: {psum: {banks: 1}, output: {words: 3}}\n")
    assert len(problems(path)) == 3
    with pytest.raises(SpecError, match="and 2 more: `opu-fuse hw check` lists them"):
        load_hw(path)


def test_a_sound_spec_has_no_problems(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD)
    assert problems(path) == ()
