"""Text assembly: one instruction per line, every line complete in itself.

::

    # comment
    load.feature dram=0x1000 run=16 rows=3 row_pitch=32 blocks=1 wait=compute signal=compute
    post.run psum=64 order=requant,act out_rows=4 … wait=compute signal=compute,store

`engine.opcode`, then `register=value` (decimal, 0x…, negative where signed; a register that is not
named is 0), then the engines whose token is awaited and those that get one. `dram` and `hash` set
their LO/HI pairs, `order` takes names of stages of a machine (`hw/spec/chain.py`), `pool_kind`
max or average, `res_kind` add, multiply or maximum.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache

from opu_fuse.errors import AsmError
from opu_fuse.hw.isa.encoding import pack_c, pack_u
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import (
    OPCODES,
    ORDER_CODE_BITS,
    ORDER_REGISTERS,
    ORDER_STAGES,
    UNITS_PER_STAGE,
    VALUE_BITS,
    Engine,
    Opcode,
    Register,
    order_of,
    order_registers,
    parameters_of,
)
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.problem import did_you_mean
from opu_fuse.units.pool import PoolKind
from opu_fuse.units.residual import ResidualKind

_PAIRS = {"dram": ("dram_lo", "dram_hi"), "hash": ("hash_lo", "hash_hi")}
"""Names that set two registers, lower 22 bits first."""

_TOKENS = ("wait", "signal")
_Symbol = tuple[Callable[[int], str], Callable[[str], int]]
_ENGINES = {engine: engine.name.lower() for engine in Engine}
_MNEMONICS = {f"{o.engine.name.lower()}.{o.name}": o for o in OPCODES}
_REGISTERS = {engine: {r.name: r for r in parameters_of(engine)} for engine in Engine}


def disassemble(
    instructions: Iterable[Instruction],
    comments: Mapping[int, str] | None = None,
    positions: Sequence[int] | None = None,
    spec: HwSpec | None = None,
) -> str:
    """Instructions -> text. comments: lines put before an instruction, by its index; positions:
    word indices, as comments after each; spec: the machine, for the names of its stages.
    """
    lines: list[str] = []
    for number, instruction in enumerate(instructions):
        if comments and number in comments:
            lines += [f"# {line}" for line in comments[number].splitlines()]
        text = format_instruction(instruction, spec)
        lines.append(text if positions is None else f"{text}  # word {positions[number]}")
    return "\n".join(lines) + "\n" * bool(lines)


def format_instruction(instruction: Instruction, spec: HwSpec | None = None) -> str:
    """One line of assembly without comment. Registers that are 0 are left out.

    spec: the machine, for the names of its stages.
    """
    params = dict(instruction.params)
    parts = [f"{_ENGINES[instruction.engine]}.{instruction.opcode}"]
    for name, (low, high) in _PAIRS.items():
        if low in params:
            parts.append(f"{name}={params.pop(low) | params.pop(high) << VALUE_BITS:#x}")
    if "order" in params:
        order = order_of(instruction.post)
        parts += [f"order={_order_text(order, spec)}"] * bool(order)
        params = {k: v for k, v in params.items() if k not in ORDER_REGISTERS}
    parts += [_format(name, value) for name, value in params.items() if value]
    for name, engines in (("wait", instruction.waits), ("signal", instruction.signals)):
        if engines:
            parts.append(_format_tokens(name, engines))
    return " ".join(parts)


def assemble(
    text: str, where: str = "program.asm", spec: HwSpec | None = None
) -> list[Instruction]:
    """Text -> instructions. spec: the machine whose stages `order` names. Raises AsmError with
    `where:line` for the first line that is wrong.
    """
    instructions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            instructions.append(_instruction(words, spec))
        except _LineError as error:
            raise AsmError(f"{where}:{number}", error.what, error.help) from None
    return instructions


class _LineError(Exception):
    """A mistake in a line whose number the caller knows."""

    def __init__(self, what: str, help_: str) -> None:
        super().__init__(what)
        self.what = what
        self.help = help_


def _instruction(words: list[str], spec: HwSpec | None) -> Instruction:
    opcode = _mnemonic(words[0])
    engine = opcode.engine
    params = dict.fromkeys(_REGISTERS[engine], 0)
    tokens: dict[str, tuple[Engine, ...]] = {"wait": (), "signal": ()}
    named: set[str] = set()
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise _LineError(f"{word!r} is not name=value", "write it without blanks around `=`")
        if name in named:
            raise _LineError(f"{name!r} appears twice", "remove one of them")
        named.add(name)
        if name in tokens:
            tokens[name] = _engines(name, value)
        else:
            params.update(_registers(engine, name, value, spec))
    _refuse_overlap(named)
    instruction = Instruction(
        engine=engine,
        opcode=opcode.name,
        params=params,
        waits=tokens["wait"],
        signals=tokens["signal"],
    )
    try:
        pack_c(opcode, instruction.waits, instruction.signals)
    except ValueError as error:
        raise _LineError(
            str(error), "engines wait on and signal each other: load, compute, post, store"
        ) from None
    return instruction


def _mnemonic(word: str) -> Opcode:
    opcode = _MNEMONICS.get(word)
    if opcode is None:
        help_ = f"known: {', '.join(_MNEMONICS)}{did_you_mean(word, _MNEMONICS)}"
        raise _LineError(f"unknown instruction {word!r}", help_)
    return opcode


def _registers(engine: Engine, name: str, text: str, spec: HwSpec | None) -> dict[str, int]:
    """Register values that one `name=text` sets."""
    registers = _REGISTERS[engine]
    pair = _PAIRS.get(name)
    if pair is not None and pair[0] in registers:
        value = _integer(name, text)
        if value < 0:
            raise _LineError(f"{name} is negative", "it is an unsigned number")
        parts = {pair[0]: value & ((1 << VALUE_BITS) - 1), pair[1]: value >> VALUE_BITS}
    elif name == "order" and name in registers:
        order = _parse_order(text, spec)
        if spec is not None:
            _refuse_order(text, order, spec)
        parts = order_registers(order)
    elif name in registers:
        parts = {name: _parse_value(name, text)}
    elif _further(registers, name):
        value = _parse_value(name.partition("@")[0], text)
        parts = {name: value} if value else {}
    else:
        known = [*(n for n, p in _PAIRS.items() if p[0] in registers), *registers, *_TOKENS]
        raise _LineError(
            f"{engine.name.lower()} has no register {name!r}",
            f"known: {', '.join(known)}{did_you_mean(name, known)}",
        )
    for register, value in parts.items():
        try:
            pack_u(registers[register.partition("@")[0]], value)
        except ValueError as error:
            raise _LineError(str(error), "correct the value") from None
    return parts


def _further(registers: Mapping[str, Register], name: str) -> bool:
    """`act_pos@1`: a register of a further unit."""
    plain, _, bank = name.partition("@")
    known = plain in registers and registers[plain].stage is not None
    return known and bank in {str(i) for i in range(1, UNITS_PER_STAGE)}


def _refuse_overlap(named: set[str]) -> None:
    for name, halves in _PAIRS.items():
        for half in halves:
            if name in named and half in named:
                raise _LineError(
                    f"{name!r} and {half!r} set the same register", "remove one of them"
                )


def _engines(name: str, text: str) -> tuple[Engine, ...]:
    results = []
    for word in text.split(","):
        if word.upper() not in Engine.__members__ or word != word.lower():
            known = tuple(e.name.lower() for e in Engine)
            raise _LineError(
                f"{name}: unknown engine {word!r}",
                f"known: {', '.join(known)}{did_you_mean(word, known)}",
            )
        results.append(Engine[word.upper()])
    return tuple(sorted(results))


def _integer(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise _LineError(f"{name}: {text!r} is not a number", "write 12, -3 or 0x1f") from None


def _order_text(order: int, spec: HwSpec | None) -> str:
    """Stages by name; a number where nobody knows the machine, or it has no such order."""
    if spec is None or chain_of(spec).mistake(order) is not None:
        return f"{order:#x}"
    return ",".join(stage.name for stage in chain_of(spec).unpack(order))


def _parse_order(text: str, spec: HwSpec | None) -> int:
    if text[0].isdigit() or text[0] == "-":
        order = _integer("order", text)
        if not 0 <= order < 1 << ORDER_CODE_BITS * ORDER_STAGES:
            what = f"order: {text} holds more than {ORDER_STAGES} codes, or is negative"
            raise _LineError(what, "correct the value")
        return order
    if spec is None:
        raise _LineError(
            f"order: {text!r} names stages of a machine", "name the machine, too: --hw SPEC"
        )
    names, chain = text.split(","), chain_of(spec)
    for name in names:
        if name not in chain.by_name:
            known = ", ".join(chain.by_name)
            hint = did_you_mean(name, chain.by_name)
            raise _LineError(f"order: unknown stage {name!r}", f"stages: {known}{hint}")
    try:
        return chain.pack(names)
    except ValueError as error:
        raise _LineError(f"order: {error}", "remove some") from None


def _refuse_order(text: str, order: int, spec: HwSpec) -> None:
    mistake = chain_of(spec).mistake(order)
    if mistake is not None:
        what = f"order: {text} is none of {spec.name}: {mistake}"
        raise _LineError(what, "follow the edges of its graph")


def _kinds(name: str, kinds: type[IntEnum]) -> _Symbol:
    """How a register is written whose values have names."""
    names = {int(kind): kind.name.lower() for kind in kinds}

    def parse(text: str) -> int:
        if text.upper() not in kinds.__members__:
            *others, last = names.values()
            known = f"{', '.join(others)} or {last}"
            raise _LineError(f"{name}: {text!r} is not known", known)
        return kinds[text.upper()]

    return lambda value: names.get(value, str(value)), parse


_SYMBOLS: dict[str, _Symbol] = {
    "pool_kind": _kinds("pool_kind", PoolKind),
    "res_kind": _kinds("res_kind", ResidualKind),
}
"""Registers that are written with names: how they are printed and read (numbers are always
accepted).
"""


@lru_cache(maxsize=1 << 14)
def _format(name: str, value: int) -> str:
    """A register; most keep their value from one instruction to the next."""
    plain = name.partition("@")[0]
    return f"{name}={_SYMBOLS[plain][0](value) if plain in _SYMBOLS else value}"


@lru_cache
def _format_tokens(name: str, engines: tuple[Engine, ...]) -> str:
    return f"{name}={','.join(e.name.lower() for e in engines)}"


def _parse_value(name: str, text: str) -> int:
    if name in _SYMBOLS and not text[0].isdigit() and text[0] != "-":
        return int(_SYMBOLS[name][1](text))
    return _integer(name, text)
