"""Instructions, words and assembly say the same thing; damaged ones are refused at the damage."""

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opu_fuse.errors import AsmError, InternalError, ProgramError
from opu_fuse.hw.isa.assembly import assemble, disassemble
from opu_fuse.hw.isa.encoding import (
    CType,
    UType,
    decode,
    decode_with_positions,
    encode,
    pack_c,
    pack_u,
    unpack,
)
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import (
    OPCODE,
    OPCODES,
    REGISTER,
    REGISTERS,
    SYNC_ENGINES,
    Engine,
    Opcode,
    parameters_of,
    registers_of,
)
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.resources import hw_specs_dir

LIGHT = load_hw("opu-light")
TINY = load_hw("opu-tiny")
ISA_PAGE = (hw_specs_dir().parent / "docs" / "isa.md").read_text(encoding="utf-8")


def make(engine, opcode, waits=(), signals=(), **params):
    zeros = {r.name: 0 for r in parameters_of(engine)}
    assert params.keys() <= zeros.keys()
    return Instruction(
        engine=engine, opcode=opcode, params=zeros | params, waits=waits, signals=signals
    )


@st.composite
def instructions(draw, opcodes: tuple[Opcode, ...] = OPCODES[1:]):
    """Any instruction but `end`, which only ends a program."""
    opcode = draw(st.sampled_from(opcodes))
    partners = [e for e in SYNC_ENGINES if e is not opcode.engine]
    tokens = st.sets(st.sampled_from(partners)) if opcode.engine in SYNC_ENGINES else st.just(set())
    params = {
        r.name: draw(st.just(0) | st.integers(r.lowest, r.highest))
        for r in parameters_of(opcode.engine)
    }
    return Instruction(
        engine=opcode.engine,
        opcode=opcode.name,
        params=params,
        waits=tuple(sorted(draw(tokens))),
        signals=tuple(sorted(draw(tokens))),
    )


programs = st.lists(instructions(), max_size=6)
END = make(Engine.FETCH, "end")


@given(programs)
def test_decoding_gives_back_what_was_encoded(program):
    assert decode(encode([*program, END])) == [*program, END]


@given(programs)
def test_assembling_gives_back_what_was_disassembled(program):
    assert assemble(disassemble(program)) == program


def test_the_example_of_assembly_is_the_words_that_the_page_shows():
    section = ISA_PAGE.partition("## Assembly")[2].partition("| in a line |")[0]
    _, text, words = section.split("```")
    shown = [int(word, 16) for word in re.findall(r"`(0x[0-9a-f]{8})`", words)]
    assert encode(assemble(text, spec=TINY)).tolist() == shown


@pytest.mark.parametrize(("short", "long"), [
    ("load.feature dram=0x400040", "load.feature dram_hi=1 dram_lo=0b1000000"),
    ("fetch.check hash=0xa1a22850f2e", "fetch.check hash_lo=0x050f2e hash_hi=0x28688a"),
    ("post.run order=requant,compare", "post.run order=0x21 psum=0"),
    ("post.run pool_kind=average res_kind=add", "post.run pool_kind=1  # 0 is add"),
    ("post.run act_lo@1=5", "post.run act_lo=0 act_lo@1=5"),
])  # fmt: skip
def test_the_short_forms_of_assembly_stand_for_registers(short, long):
    words = short.split()[1:]
    assert all(word in ISA_PAGE for word in words)
    assert assemble(short, spec=TINY) == assemble(long, spec=TINY)


@given(programs)
def test_encoding_again_gives_the_same_words(program):
    words = encode(program)
    assert np.array_equal(encode(decode(words)), words)


@given(programs)
def test_every_position_is_the_word_that_starts_its_instruction(program):
    words = encode(program)
    decoded, positions = decode_with_positions(words)
    assert len(positions) == len(decoded)
    for instruction, position in zip(decoded, positions, strict=True):
        word = unpack(int(words[position]))
        assert isinstance(word, CType)
        assert word.opcode == OPCODE[instruction.engine, instruction.opcode]


@given(st.sampled_from(REGISTERS), st.data())
def test_a_register_value_survives_its_word(register, data):
    value = data.draw(st.integers(register.lowest, register.highest))
    assert unpack(pack_u(register, value)) == UType(register=register, value=value)


@given(st.integers(0, (1 << 32) - 1))
def test_any_word_is_either_refused_or_means_exactly_itself(word):
    try:
        fields = unpack(word)
    except ValueError:
        return
    if isinstance(fields, UType):
        assert pack_u(fields.register, fields.value) == word
    else:
        assert pack_c(fields.opcode, fields.waits, fields.signals) == word


def test_only_changed_registers_are_emitted():
    load = make(Engine.LOAD, "feature", run=4, rows=2)
    words = encode([load, load, replace(load, params={**load.params, "rows": 3})])
    kinds = [int(w) >> 31 for w in words]
    assert kinds == [0, 0, 1, 1, 0, 1]


def test_the_word_formats_are_the_documented_bits():
    register = REGISTER[Engine.COMPUTE, "origin_y"]
    assert pack_u(register, -1) == 2 << 28 | 5 << 22 | 0x3FFFFF
    word = pack_c(OPCODE[Engine.POST, "run"], (Engine.COMPUTE,), (Engine.COMPUTE, Engine.STORE))
    assert word == 1 << 31 | 3 << 28 | 0 << 24 | 0b00100 << 16 | 0b10100 << 8


def test_a_program_of_100_000_words_takes_well_under_a_second():
    names = {e: [r.name for r in registers_of(e)][:8] for e in (Engine.LOAD, Engine.POST)}
    program = [
        make(engine, opcode, **dict.fromkeys(names[engine], 1 + number % 100))
        for number in range(6_000)
        for engine, opcode in ((Engine.LOAD, "feature"), (Engine.POST, "run"))
    ]
    start = time.process_time()
    words = encode(program)
    back = decode(words)
    seconds = time.process_time() - start
    assert len(words) > 100_000
    assert back == program
    assert seconds < 1.5, "0.3 s where this was written; quadratic code takes minutes"


LOAD = Engine.LOAD << 28
BROKEN_WORDS = {
    "an absent engine": (7 << 28, "engine 7 does not exist"),
    "an absent register": (LOAD | 16 << 22, "load has no register 16 (0..15)"),
    "a value too wide": (LOAD | 3 << 22 | 1 << 16, "load.run: value 0x10000 does not fit 16 bits"),
    "a signed value out of range": (
        Engine.COMPUTE << 28 | 22 << 22 | 128,
        "compute.pad_value: value 0x80 does not fit 8 signed bits",
    ),
    "an absent opcode": (1 << 31 | LOAD | 9 << 24, "load has no opcode 9 (0..8)"),
    "reserved bits": (1 << 31 | LOAD | 5, "reserved bits 7:0 are 0x5, not zero"),
    "a wait on itself": (
        1 << 31 | LOAD | 1 << (16 + 1),
        "waits on or signals an engine without such",
    ),
    "a signal to fetch": (1 << 31 | LOAD | 1 << 8, "waits on or signals an engine without such"),
    "a signal to nobody": (1 << 31 | LOAD | 1 << (8 + 6), "waits on or signals an engine"),
    "fetch that waits": (1 << 31 | 1 << (16 + 1), "fetch waits on or signals an engine"),
}


@pytest.mark.parametrize("case", BROKEN_WORDS)
def test_a_broken_word_is_refused_with_its_index(case):
    word, text = BROKEN_WORDS[case]
    words = np.concatenate(
        [encode([make(Engine.LOAD, "param", run=1)]), np.array([word], np.uint32)]
    )
    with pytest.raises(ProgramError) as error:
        decode(words)
    assert str(error.value).startswith("program word 2: ")
    assert text in str(error.value)
    with pytest.raises(ValueError, match=re.escape(text)):
        unpack(word)


def test_words_after_the_end_are_refused():
    words = encode([END, make(Engine.LOAD, "param")])
    with pytest.raises(ProgramError, match="program word 1: words follow `end`"):
        decode(words)


def test_a_parameter_that_no_instruction_uses_is_refused():
    words = encode([make(Engine.LOAD, "param", run=3)])[:-1]
    with pytest.raises(ProgramError, match="word 0: sets a parameter, but no instruction"):
        decode(words)


BROKEN_INSTRUCTIONS = {
    "too large": (
        make(Engine.COMPUTE, "conv", stride_y=256),
        "compute.stride_y = 256 is outside 0..255",
    ),
    "negative": (
        make(Engine.COMPUTE, "conv", stride_y=-1),
        "compute.stride_y = -1 is outside 0..255",
    ),
    "unknown opcode": (make(Engine.LOAD, "weights"), "load has no opcode 'weights'"),
    "wait on itself": (
        make(Engine.LOAD, "weight", waits=(Engine.LOAD,)),
        "load.weight waits on load",
    ),
    "signal twice": (
        make(Engine.LOAD, "weight", signals=(Engine.POST, Engine.POST)),
        "load.weight signals post: no such counter, or named twice",
    ),
    "missing register": (
        Instruction(engine=Engine.FETCH, opcode="check", params={"hash_lo": 0}),
        "missing registers hash_hi",
    ),
    "unknown register": (
        Instruction(engine=Engine.FETCH, opcode="end", params={"hash_lo": 0, "hash_hi": 0, "x": 1}),
        "unknown registers x",
    ),
}


@pytest.mark.parametrize("case", BROKEN_INSTRUCTIONS)
def test_an_instruction_that_cannot_be_encoded_is_our_bug_and_is_named(case):
    instruction, text = BROKEN_INSTRUCTIONS[case]
    with pytest.raises(InternalError) as error:
        encode([END, instruction])
    assert f"instruction 1: {text}" in str(error.value)


def test_assembly_reads_like_the_machine():
    text = """
        # first tile
        load.feature dram=0x500010 dst=0 run=16 rows=2 blocks=1 wait=compute signal=compute
        compute.conv origin_y=-1 pad_value=-3   # halo above
        post.run order=requant,compare,pool pool_kind=average wait=compute signal=compute,store
        post.run order=table,se res_kind=multiply
    """
    load, conv, post, product = assemble(text, spec=LIGHT)
    assert (load.dram, load.params["run"], load.waits) == (0x500010, 16, (Engine.COMPUTE,))
    assert (conv.params["origin_y"], conv.params["pad_value"]) == (-1, -3)
    assert post.params["order"] == 0x321
    assert post.params["pool_kind"] == 1
    assert post.signals == (Engine.COMPUTE, Engine.STORE)
    assert product.params["order"] == 0x65
    assert product.params["res_kind"] == 1
    assert "order=table,se res_kind=multiply" in disassemble([product], spec=LIGHT)
    assert "order=0x65 " in disassemble([product])


@pytest.mark.parametrize(("value", "text"), [(0, ""), (1, "multiply"), (2, "maximum"), (3, "3")])
def test_kinds_are_written_with_their_names_and_unknown_ones_with_their_numbers(value, text):
    line = f"post.run order=res_add{text and ' res_kind='}{text}"
    (found,) = assemble(line, spec=LIGHT)
    assert found.params["res_kind"] == value
    assert line in disassemble([found], spec=LIGHT)
    assert assemble(disassemble([found], spec=LIGHT), spec=LIGHT) == [found]


def test_units_have_registers_of_their_own():
    text = "post.run order=0x1 act_lo=-7 act_lo@1=-7 pool_kind@11=average act_pos@1=3"
    (post,) = assemble(text)
    assert post.params["act_lo"] == post.params["act_lo@1"] == -7
    assert {name for name in post.params if "@" in name} == {
        *("act_lo@1", "act_pos@1", "pool_kind@11")
    }
    program = [post, replace(post, params=dict(post.params) | {"act_lo": 1}), END]
    assert decode(encode(program)) == program
    assert assemble(disassemble(program)) == program
    without = {k: v for k, v in post.params.items() if k != "act_pos@1"}
    program = [post, replace(post, params=without), END]  # back to 0
    assert decode(encode(program)) == program


def test_a_unit_is_selected_before_its_registers_are_written():
    post = make(Engine.POST, "run", act_pos=5, psum=2)
    post = replace(post, params=dict(post.params) | {"act_pos@1": 6})
    index = {name: REGISTER[Engine.POST, name].index for name in ("psum", "act_pos", "bank")}
    written = [(w >> 22 & 63, w & 0x3FFFFF) for w in encode([post]).tolist() if not w >> 31]
    assert written == [
        *((index["psum"], 2), (index["act_pos"], 5), (index["bank"], 1), (index["act_pos"], 6))
    ]


def test_disassembly_shows_comments_and_positions():
    program = [make(Engine.LOAD, "param", run=8), END]
    text = disassemble(program, comments={0: "group 0\nconv1"}, positions=[1, 2])
    assert text.splitlines() == [
        "# group 0",
        "# conv1",
        "load.param dram=0x0 run=8  # word 1",
        "fetch.end hash=0x0  # word 2",
    ]


def test_no_instructions_are_no_text():
    assert disassemble([]) == ""
    assert assemble("") == []
    assert decode(encode([])) == []


BROKEN_LINES = {
    "load.features run=1": "unknown instruction 'load.features'; known: fetch.end, ",
    "load.feature rum=1": "load has no register 'rum'; known: dram, dram_lo, ",
    "load.feature run": "'run' is not name=value",
    "load.feature run=": "'run=' is not name=value",
    "load.feature run=x": "run: 'x' is not a number",
    "load.feature run=1 run=2": "'run' appears twice",
    "load.feature run=65536": "load.run = 65536 is outside 0..65535 (16 bits)",
    "load.feature dram=-1": "dram is negative",
    "load.feature dram=0x100000000": "load.dram_hi = 1024 is outside 0..1023",
    "load.feature dram=1 dram_lo=1": "'dram' and 'dram_lo' set the same register",
    "load.feature wait=load": "load.feature waits on load: no such counter",
    "load.feature wait=fetch": "load.feature waits on fetch: no such counter",
    "load.feature wait=stor": "wait: unknown engine 'stor'; known: fetch, load, compute, post",
    "load.feature signal=post,post": "load.feature signals post: no such counter, or named twice",
    "post.run order=requant,relu": "order: unknown stage 'relu'; stages: requant, compare, pool, ",
    "post.run order=tabel": "order: unknown stage 'tabel'; stages: requant, compare, pool, "
    "res_add, table, se, slopes (did you mean 'table'?)",
    f"post.run order={'pool,' * 15}pool": "order: 16 post stages, an order holds 15",
    "post.run order=se,res_add": "order: se,res_add is none of opu-light: se and res_add share "
    "a unit, which a pass uses once",
    "post.run order=compare,table": "order: compare,table is none of opu-light: compare does not "
    "lead to table; follow the edges of its graph",
    "post.run order=0x12": "order: 0x12 is none of opu-light: compare does not lead to requant",
    "post.run order=15": "order: 15 is none of opu-light: unknown stage 15",
    "post.run order=0x1000000": "order: 0x1000000 is none of opu-light: codes after its end",
    f"post.run order={1 << 60:#x}": "order: 0x1000000000000000 holds more than 15 codes",
    "post.run order=0x201": "order: 0x201 is none of opu-light: codes after its end",
    "post.run order=-1": "order: -1 holds more than 15 codes, or is negative",
    "post.run act_pos@12=1": "post has no register 'act_pos@12'",
    "post.run psum@1=1": "post has no register 'psum@1'",
    "post.run bank=1": "post has no register 'bank'",
    "post.run pool_kind=mean": "pool_kind: 'mean' is not known; max or average",
    "post.run res_kind=sum": "res_kind: 'sum' is not known; add, multiply or maximum",
    "post.run hash=1": "post has no register 'hash'",
}


@pytest.mark.parametrize("line", BROKEN_LINES)
def test_a_wrong_line_of_assembly_is_refused_with_its_number(line):
    with pytest.raises(AsmError) as error:
        assemble(f"# comment\n\nload.param run=1\n{line}\n", where="mine.asm", spec=LIGHT)
    assert str(error.value).startswith(f"mine.asm:4: {BROKEN_LINES[line]}")


def test_stages_have_names_on_a_machine_only():
    with pytest.raises(AsmError) as error:
        assemble("post.run order=requant", where="mine.asm")
    assert str(error.value) == (
        "mine.asm:1: order: 'requant' names stages of a machine; name the machine, too: --hw SPEC"
    )
    assert [x.params["order"] for x in assemble("post.run order=0x7\npost.run order=7")] == [7, 7]


def test_an_order_that_the_machine_does_not_have_is_listed_as_a_number():
    odd = make(Engine.POST, "run", order=0x66)
    assert "order=0x66" in disassemble([odd], spec=LIGHT)


def test_a_misspelt_register_gets_a_suggestion():
    with pytest.raises(AsmError, match="did you mean 'row_pitch'"):
        assemble("load.feature row_ptch=1")
