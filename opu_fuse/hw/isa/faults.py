"""Faults of a machine: illegal instructions, and accesses outside their memory.

Tiles of a layer differ in their addresses only. So an instruction is analysed with all addresses
zero, once for all that are alike; then each of them costs a few comparisons.
"""

from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.im2row_window import UNFOLD
from opu_fuse.hw.isa.footprint import dram_word_bytes, footprint, space_limit
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.legality import illegal
from opu_fuse.hw.isa.table import Engine, parameters_of, unit_register
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import Space
from opu_fuse.units.memory import MEMORIES

BASES: dict[Engine, dict[Space, str]] = {
    engine: dict.fromkeys(Space, "dst")
    if engine is Engine.LOAD
    else {m.space: m.bases[key] for m in MEMORIES if (key := engine.name.lower()) in m.bases}
    for engine in Engine
}
"""The register that moves an access to a memory as a whole, of the unit that makes it; DRAM has its
own two.
"""

_READS = {m.space: m.bases["load"] for m in MEMORIES if "load" in m.bases}
"""Memory that load reads -> the register with the base address of the access."""

_ADDRESSES = {
    engine: {name for space, name in bases.items() if space is not Space.DRAM}
    | ({"dram_lo", "dram_hi"} if engine in (Engine.LOAD, Engine.STORE) else set())
    | (set(_READS.values()) if engine is Engine.LOAD else set())
    for engine, bases in BASES.items()
}
_SHAPES = {
    engine: itemgetter(*(r.name for r in parameters_of(engine) if r.name not in addresses))
    for engine, addresses in _ADDRESSES.items()
}
"""Params -> values of all other registers."""
_COUNT = max(len(parameters_of(engine)) for engine in Engine)
"""Instructions with more have registers of further units."""


class _Reach(Struct, frozen=True):
    """Words (bytes of DRAM) from `start` to `end`, relative to the base in a register; limit: size
    of the memory.
    """

    space: Space
    start: int
    end: int
    limit: int
    write: bool
    unit: int


class Faults:
    """Faults of one machine with one memory window."""

    def __init__(self, spec: HwSpec, window_bytes: int) -> None:
        self._spec, self._window = spec, window_bytes
        self._known: dict[tuple[object, ...], str | tuple[_Reach, ...]] = {}

    def reason(self, instruction: Instruction) -> str | None:
        """Why the machine faults at an instruction, as text to follow its name; else None.

        The text names an illegal register, or the memory, address and limit.
        """
        engine, p = instruction.engine, instruction.params
        further = tuple(_further(p, _ADDRESSES[engine])) if len(p) > _COUNT else ()
        registers = (_SHAPES[engine](p), further)
        shape = (instruction.opcode, instruction.waits, instruction.signals, registers)
        result = self._known.get(shape)
        if result is None:
            result = self._known[shape] = self._accesses_from_zero(instruction)
        if isinstance(result, str):
            return result
        return self._misplaced(instruction) or self._outside(instruction, result)

    def _accesses_from_zero(self, instruction: Instruction) -> str | tuple[_Reach, ...]:
        """A fault that does not depend on addresses, else all accesses with addresses of zero."""
        wrong = illegal(instruction, self._spec)
        if wrong is not None:
            return wrong
        zeros = dict.fromkeys(_ADDRESSES[instruction.engine], 0)
        own = {k: v for k, v in instruction.params.items() if k.partition("@")[0] not in zeros}
        plain = replace(instruction, params=own | zeros)
        return tuple(
            _Reach(
                space=access.space,
                start=access.intervals[0][0],
                end=access.intervals[-1][1],
                limit=self._limit(access.space),
                write=access.write,
                unit=access.unit,
            )
            for access in footprint(plain, self._spec)
        )

    def _limit(self, space: Space) -> int:
        return self._window if space is Space.DRAM else space_limit(space, self._spec)

    def _misplaced(self, x: Instruction) -> str | None:
        if x.engine not in (Engine.LOAD, Engine.STORE) or x.opcode == UNFOLD:
            return None
        space = Space.OUTPUT if x.engine is Engine.STORE else Space(x.opcode)
        word = dram_word_bytes(space, self._spec)
        if x.dram % word:
            return f"has DRAM address {x.dram:#x}, not a multiple of {word} bytes"
        return None

    def _outside(self, x: Instruction, reaches: tuple[_Reach, ...]) -> str | None:
        for r in reaches:
            dram = r.space is Space.DRAM
            base = x.dram if dram else _base(x.params, _register(x.engine, r), r.unit)
            start, end = base + r.start, base + r.end
            if end > r.limit or start < 0:
                verb = "writes" if r.write else "reads"
                unit, memory = ("byte", "memory window") if dram else ("word", f"{r.space} buffer")
                bad = start if start < 0 else max(start, r.limit)
                return f"{verb} {unit} {bad} of the {memory}, which holds {r.limit} {unit}s"
        return None


def _register(engine: Engine, r: _Reach) -> str:
    """Whose value moves an access."""
    reads = _READS.get(r.space) if engine is Engine.LOAD and not r.write else None
    return reads or BASES[engine][r.space]


def _further(p: Mapping[str, int], addresses: Collection[str]) -> Iterator[tuple[str, int]]:
    """Registers of further units but addresses."""
    for key, value in p.items():
        name, _, unit = key.partition("@")
        if unit and name not in addresses:
            yield key, value


def _base(p: Mapping[str, int], name: str, unit: int) -> int:
    """An address register of a unit; those of further units are left out where they are 0."""
    return p[name] if unit == 0 else p.get(unit_register(name, unit), 0)
