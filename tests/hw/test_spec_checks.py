"""A well-formed spec that makes no machine is refused with file, line and a way out."""

import pytest

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.load_spec import load_hw, problems

HEAD = "extends: opu-tiny\nname: mine\n"


def has(messages, start, inside=""):
    """One line that contains both texts."""
    return any(start in m and inside in m and "\n" not in m for m in messages)


GRAPH = {
    "a name that assembly cannot say": (
        "dataflow:\n  modules:\n    relu-6: {kind: comparator, exit: true}\n",
        "mine.yaml:5: module name 'relu-6' is no identifier",
        "use letters, digits and _, and begin with a letter",
    ),
    "the name of the requantiser": (
        "dataflow:\n  modules:\n    requant: {kind: comparator, exit: true}\n",
        "mine.yaml:5: module name 'requant' is the requantiser in programs",
        "use another name",
    ),
    "an edge to a missing module": (
        "dataflow:\n  edges:\n    add: [compare, pol, res_add]\n",
        "mine.yaml:5: edge add -> pol: module 'pol' does not exist; modules: concat, ",
        "did you mean 'pool'",
    ),
    "an edge from a missing module": (
        "dataflow:\n  edges:\n    sigmoid: [pool]\n",
        "mine.yaml:5: module 'sigmoid', from which edges lead, does not exist",
        "",
    ),
    "a module that feeds itself": (
        "dataflow:\n  edges:\n    pool: [pool, compare, res_add]\n",
        "mine.yaml:5: module 'pool' feeds itself",
        "",
    ),
    "an edge twice": (
        "dataflow:\n  edges:\n    ipa: [add, add]\n",
        "mine.yaml:5: edge ipa -> add appears twice",
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
        "mine.yaml:5: operator 'relu' is mapped to table, but no module is of that kind",
        "",
    ),
    "an operator mapped to nothing": (
        "dataflow:\n  operators:\n    relu: []\n",
        "mine.yaml:5: operator 'relu' has no module kind",
        "",
    ),
    "an operator on a module that cannot run it": (
        "dataflow:\n  operators:\n    conv: [pool]\n",
        "mine.yaml:5: a module of kind pool cannot run 'conv'; kinds that can: ipa",
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
        "module 'pool' has input domain acc, but no module that feeds it has output domain acc",
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
        "mine.yaml:3: mode 1 appears twice",
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
    "a pre chain without room for a block": (
        "build: false\nbuffers: {pre: {words: 8}}\n",
        "mine.yaml:4: pre buffer too small for the smallest legal tile: ",
        "one channel block takes 8 words, a bank holds 4; use at least 16 words",
    ),
    "a table memory without room for a table": (
        "build: false\nbuffers: {table: {words: 256}}\n",
        "mine.yaml:4: table buffer too small for the smallest legal tile: ",
        "one function takes 256 words, a bank holds 128; use at least 512 words",
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
    "a multiplier that holds no factor well enough": (
        "numeric: {multiplier_bits: 7}\n",
        "mine.yaml:3: factors of 7 bits put results off by more than a step",
        "use at least 8, or 0: powers of two only",
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
    "more on-chip memory than any chip has": (
        "buffers: {psum: {words: 4194304}, feature: {words: 4194304}, output: {words: 4194304},\n"
        + "  residual: {words: 4194304}, param: {words: 4194304}}\n",
        "mine.yaml:3: the buffers take 268",
        "no FPGA has more than 268435456; use at least",
    ),
    "memory that never answers": (
        "dram: {latency: 65536}\n",
        "mine.yaml:3: dram.latency 65536: input should be less than or equal to 65535",
        "",
    ),
    "memory that hardly moves": (
        "dram: {bytes_per_cycle: 1.0e-300}\n",
        "mine.yaml:3: dram.bytes_per_cycle 1e-300: input should be greater than or equal to ",
        "0.01",
    ),
    "a queue longer than any": (
        "queues: {load: 70000}\n",
        "mine.yaml:3: queues.load 70000: input should be less than or equal to 65536",
        "",
    ),
    "memory faster than its bus": (
        "dram: {bytes_per_cycle: 17}\n",
        "mine.yaml:3: 17 bytes per cycle exceed what reads and writes of a 8-byte bus carry",
        "",
    ),
}


@pytest.mark.parametrize("case", GRAPH | SIZES)
def test_a_spec_that_makes_no_machine_is_refused(case, explain):
    text, start, inside = (GRAPH | SIZES)[case]
    messages = explain(HEAD + text)
    assert has(messages, start, inside), messages


def test_the_check_lists_every_mistake_and_loading_counts_the_rest(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        HEAD + "post: {lanes: 4}\nbuffers: {psum: {banks: 3, words: 126}, output: {words: 3}}\n"
    )
    assert len(problems(path)) == 3
    with pytest.raises(SpecError, match="and 2 more: `opu-fuse hw check` lists them"):
        load_hw(path)


def test_a_sound_spec_has_no_problems(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD)
    assert problems(path) == ()
