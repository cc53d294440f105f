"""Instructions <-> 32-bit words, encoded and decoded in linear time.

The encoder emits only registers that change (they keep their values and start at 0) and then the
C-type. The decoder is strict: it refuses every word that the machine would refuse,
with the word's index. Word formats: `table.py`.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from opu_fuse.errors import InternalError, ProgramError
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import (
    BANK,
    MASK_BITS,
    OPCODE,
    OPCODES,
    REGISTER,
    REGISTERS,
    REGISTERS_PER_ENGINE,
    SYNC_ENGINES,
    VALUE_BITS,
    Engine,
    Opcode,
    Register,
    parameters_of,
    registers_of,
    unit_register,
)

_VALUE_MASK = (1 << VALUE_BITS) - 1
_ENGINES = 8
"""Values of the engine field (three bits)."""
_COMPILE_AGAIN = "the program is damaged or of another version; compile it again"


class UType(Struct, frozen=True, kw_only=True):
    """Sets one parameter register."""

    register: Register
    value: int


class CType(Struct, frozen=True, kw_only=True):
    """Starts an engine."""

    opcode: Opcode
    waits: tuple[Engine, ...]
    signals: tuple[Engine, ...]


def pack_u(register: Register, value: int) -> int:
    """One U-type. Raises ValueError when the value does not fit the register."""
    if not register.lowest <= value <= register.highest:
        raise ValueError(
            f"{register.engine.name.lower()}.{register.name} = {value} is outside "
            f"{register.lowest}..{register.highest} ({register.bits} bits)"
        )
    return register.engine << 28 | register.index << 22 | (value & _VALUE_MASK)


def pack_c(opcode: Opcode, waits: Iterable[Engine], signals: Iterable[Engine]) -> int:
    """One C-type. Raises ValueError for a wait on or signal to itself, fetch, or the same engine
    twice.
    """
    return (
        1 << 31
        | opcode.engine << 28
        | opcode.code << 24
        | _mask(opcode, "waits on", waits) << 16
        | _mask(opcode, "signals", signals) << 8
    )


def _mask(opcode: Opcode, verb: str, engines: Iterable[Engine]) -> int:
    mask = 0
    for engine in engines:
        bit = 1 << engine
        if (
            engine is opcode.engine
            or engine not in SYNC_ENGINES
            or opcode.engine not in SYNC_ENGINES
            or mask & bit
        ):
            text = f"{opcode.engine.name.lower()}.{opcode.name} {verb} {engine.name.lower()}"
            raise ValueError(f"{text}: no such counter, or named twice")
        mask |= bit
    return mask


def unpack(word: int) -> UType | CType:
    """Fields of one word. Raises ValueError saying what is wrong with it."""
    fault = _faults(np.array([word], np.uint32))
    if fault is not None:
        raise ValueError(fault[1])
    engine = Engine(word >> 28 & 7)
    if word >> 31:
        opcode = _OPCODE_AT[engine][word >> 24 & 15]
        return CType(
            opcode=opcode, waits=_engines(word >> 16 & 255), signals=_engines(word >> 8 & 255)
        )
    register = registers_of(engine)[word >> 22 & 63]
    value = word & _VALUE_MASK
    if register.signed and value >> (VALUE_BITS - 1):
        value -= 1 << VALUE_BITS
    return UType(register=register, value=value)


def encode(instructions: Iterable[Instruction]) -> np.ndarray:
    """Instructions -> uint32 words, only changed registers before each C-type.

    Raises InternalError naming instruction and register when params are incomplete or a value does
    not fit.
    """
    words: list[int] = []
    last: dict[Engine, Mapping[str, int]] = {
        engine: {r.name: 0 for r in parameters_of(engine)} for engine in Engine
    }
    banks = dict.fromkeys(Engine, 0)
    for number, instruction in enumerate(instructions):
        engine = instruction.engine
        try:
            new, banks[engine] = _words_of(instruction, last[engine], banks[engine])
        except ValueError as error:
            raise InternalError("encode", f"instruction {number}: {error}") from None
        words += new
        last[engine] = dict(instruction.params)
    return np.array(words, np.uint32)


def _words_of(
    instruction: Instruction, before: Mapping[str, int], bank: int
) -> tuple[list[int], int]:
    """U-types of the registers that differ from `before`, then the C-type. bank: the unit that
    is selected; returned as it is left.
    """
    engine, params = instruction.engine, instruction.params
    further = {key for key in (*params, *before) if "@" in key}
    plain, known = params.keys() - further, {r.name for r in _PARAMETERS[engine]}
    if plain != known:
        raise ValueError(_register_names(plain ^ known, known))
    opcode = OPCODE.get((engine, instruction.opcode))
    if opcode is None:
        raise ValueError(f"{engine.name.lower()} has no opcode {instruction.opcode!r}")
    words: list[int] = []
    changes = [
        (0, r, params[r.name]) for r in _PARAMETERS[engine] if params[r.name] != before[r.name]
    ]
    for key in sorted(key for key in further if params.get(key, 0) != before.get(key, 0)):
        name, _, unit = key.partition("@")
        changes.append((int(unit), REGISTER[engine, name], params.get(key, 0)))
    for wanted, register, value in changes:
        if register.stage is not None and wanted != bank:
            words.append(pack_u(REGISTER[engine, BANK], wanted))
            bank = wanted
        words.append(pack_u(register, int(value)))
    return [*words, pack_c(opcode, instruction.waits, instruction.signals)], bank


def decode(words: np.ndarray) -> list[Instruction]:
    """uint32 words of one program -> its instructions. Raises ProgramError naming the word."""
    return decode_with_positions(words)[0]


def decode_with_positions(words: np.ndarray) -> tuple[list[Instruction], np.ndarray]:
    """Instructions as `decode` gives them, and the word index (int64) of each one's C-type."""
    words = np.ascontiguousarray(words, np.uint32)
    fault = _faults(words)
    if fault is not None:
        raise _program_error(*fault)
    positions = np.flatnonzero(words >> 31)
    params = {engine: {r.name: 0 for r in parameters_of(engine)} for engine in Engine}
    banks = dict.fromkeys(Engine, 0)
    pending: dict[int, int] = {}
    instructions: list[Instruction] = []
    values = _signed_values(words)
    for index, (word, value) in enumerate(zip(words.tolist(), values.tolist(), strict=True)):
        engine = _ENGINE_AT[word >> 28 & 7]
        if not word >> 31:
            name = _NAMES[engine][word >> 22 & 63]
            pending.setdefault(engine, index)
            if name == BANK:
                banks[engine] = value
            elif banks[engine] and _staged(engine, name):
                _set_of_unit(params[engine], unit_register(name, banks[engine]), value)
            else:
                params[engine][name] = value
            continue
        pending.pop(engine, None)
        instruction = Instruction(
            engine=engine,
            opcode=_OPCODE_AT[engine][word >> 24 & 15].name,
            params=params[engine].copy(),
            waits=_MASKS[word >> 16 & 255],
            signals=_MASKS[word >> 8 & 255],
        )
        instructions.append(instruction)
        if engine is Engine.FETCH and instruction.opcode == "end" and index + 1 < len(words):
            raise _program_error(index + 1, "words follow `end`")
    if pending:
        raise _program_error(
            min(pending.values()), "sets a parameter, but no instruction of its engine follows"
        )
    return instructions, positions


def _staged(engine: Engine, name: str) -> bool:
    return REGISTER[engine, name].stage is not None


def _set_of_unit(params: dict[str, int], key: str, value: int) -> None:
    """Registers of further units are entries only when they are not 0."""
    if value:
        params[key] = value
    else:
        params.pop(key, None)


def _signed_values(words: np.ndarray) -> np.ndarray:
    """Value of every word as its register means it (meaningless for C-types)."""
    value = (words & np.uint32(_VALUE_MASK)).astype(np.int64)
    signed = _SIGNED[words >> 28 & 7, words >> 22 & 63] & (value >> (VALUE_BITS - 1) == 1)
    return value - (signed.astype(np.int64) << VALUE_BITS)


def _faults(words: np.ndarray) -> tuple[int, str] | None:
    """First word the machine refuses, and why."""
    engine, upper = words >> 28 & 7, words >> 24 & 15
    ctype = words >> 31 == 1
    register = words >> 22 & 63
    value = _signed_values(words)
    in_range = (value >= _LOWEST[engine, register]) & (value <= _HIGHEST[engine, register])
    masks = (words >> 16 & 255) | (words >> 8 & 255)
    bad = np.where(
        ctype,
        (upper >= _OPCODE_COUNT[engine]) | (masks & ~_TOKENS[engine] != 0) | (words & 255 != 0),
        ~(_EXISTS[engine, register] & in_range),
    )
    if not bad.any():
        return None
    index = int(np.argmax(bad))
    return index, _why(int(words[index]))


def _why(word: int) -> str:
    number, ctype = word >> 28 & 7, word >> 31
    if number >= len(Engine):
        return f"engine {number} does not exist (0..{len(Engine) - 1})"
    engine = Engine(number)
    name = engine.name.lower()
    if not ctype:
        registers = registers_of(engine)
        index = word >> 22 & 63
        if index >= len(registers):
            return f"{name} has no register {index} (0..{len(registers) - 1})"
        r = registers[index]
        kind = "signed bits" if r.signed else "bits"
        return f"{name}.{r.name}: value {word & _VALUE_MASK:#x} does not fit {r.bits} {kind}"
    opcode = word >> 24 & 15
    if opcode >= len(_OPCODE_AT[engine]):
        return f"{name} has no opcode {opcode} (0..{len(_OPCODE_AT[engine]) - 1})"
    if word & 255:
        return f"reserved bits 7:0 are {word & 255:#x}, not zero"
    masks = f"masks {word >> 16 & 255:#x}, {word >> 8 & 255:#x}"
    return f"{name} waits on or signals an engine without such a counter ({masks})"


def _register_names(wrong: Iterable[str], known: Iterable[str]) -> str:
    known = set(known)
    missing = sorted(n for n in wrong if n in known)
    unknown = sorted(n for n in wrong if n not in known)
    parts = [f"missing registers {', '.join(missing)}"] * bool(missing)
    return "; ".join(parts + [f"unknown registers {', '.join(unknown)}"] * bool(unknown))


def _program_error(index: int, what: str) -> ProgramError:
    return ProgramError(f"program word {index}", what, _COMPILE_AGAIN)


def _engines(mask: int) -> tuple[Engine, ...]:
    return tuple(e for e in Engine if mask >> e & 1)


def _table(fill: int | bool, field: str, dtype: type) -> np.ndarray:
    table = np.full((_ENGINES, REGISTERS_PER_ENGINE), fill, dtype)
    for register in REGISTERS:
        table[register.engine, register.index] = getattr(register, field)
    return table


_ENGINE_AT = dict(enumerate(Engine))
_PARAMETERS: dict[Engine, tuple[Register, ...]] = {e: parameters_of(e) for e in Engine}
_NAMES = {e: tuple(r.name for r in registers_of(e)) for e in Engine}
_OPCODE_AT: dict[Engine, Sequence[Opcode]] = {
    e: [o for o in OPCODES if o.engine is e] for e in Engine
}
_MASKS = tuple(_engines(mask) for mask in range(1 << MASK_BITS))
_SIGNED = _table(False, "signed", np.bool_)
_LOWEST = _table(1, "lowest", np.int64)
_HIGHEST = _table(0, "highest", np.int64)
_EXISTS = _HIGHEST >= _LOWEST
_OPCODE_COUNT = np.array(
    [len(_OPCODE_AT[Engine(e)]) if e < len(Engine) else 0 for e in range(_ENGINES)]
)
_TOKENS = np.array(
    [
        sum(1 << s for s in SYNC_ENGINES if s != e) if e in SYNC_ENGINES else 0
        for e in range(_ENGINES)
    ],
    np.uint32,
)
"""Mask bits an engine may use."""
