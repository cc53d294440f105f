"""Whether a program runs every group along the graph of its machine, on the modules that it names.

An own reading of docs/isa.md and docs/hw-spec.md: of instructions, the words; of the machine, the
spec's modules and edges.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from opu_fuse.bundle.program import Bundle, GroupInfo, MachineSegment
from opu_fuse.hw.isa import OPCODE, ORDER_REGISTERS, REGISTER, Engine
from opu_fuse.hw.spec import HwSpec

_ARRAY = "the array"
_IN_FRONT = ("ipa", "adder", "multiplier", "comparator")
_STAGES = ("comparator", "pool", "res_adder", "se", "table")
_ORDER_REGISTERS = [REGISTER[Engine.POST, name].index for name in ORDER_REGISTERS]
_RUN = OPCODE[Engine.POST, "run"].code


def order_mistake(bundle: Bundle, hw: HwSpec) -> str | None:
    """None, or the first group whose way is none."""
    orders = _orders(bundle, hw)
    for group in bundle.groups:
        used = [op.module for op in group.ops if op.module is not None]
        wrong = _way_mistake(hw, used) if used else None
        if wrong is not None:
            return f"group {group.name!r} on {' -> '.join(used)}: {wrong}"
        wanted = _wanted(hw, group)
        for names in orders[group.index] - wanted:
            return f"group {group.name!r} is emitted as {names}, matched as {sorted(wanted)}"
    return None


def _wanted(hw: HwSpec, group: GroupInfo) -> set[tuple[str, ...]]:
    """What it was matched on, of that what an order says: the array and the stages behind it. The
    array may stand for the first of them: an average whose window exceeds a tile.
    """
    chain = _chain(hw)
    modules = {op.module: hw.dataflow.modules[op.module] for op in group.ops if op.module}
    array = any(m.kind in _IN_FRONT and name not in chain for name, m in modules.items())
    used = [op for op in group.ops if op.module in chain]
    names = tuple(str(op.module) for op in used)
    if array:
        return {(_ARRAY, *names)}
    averages = used and used[0].op == "avg_pool"
    return {names, (_ARRAY, *names[1:]) if averages else names}


def _orders(bundle: Bundle, hw: HwSpec) -> Mapping[int, set[tuple[str, ...]]]:
    """Group -> what its passes go through."""
    by_code = dict(enumerate((_ARRAY, *_chain(hw)), 1))
    found: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    for segment in bundle.segments:
        if isinstance(segment, MachineSegment):
            begin = (segment.program_offset - bundle.program_offset) // 4
            words = bundle.words[begin : begin + segment.words]
            for number, codes in _runs(words):
                found[segment.groups[number]].add(tuple(by_code[code] for code in codes))
    return found


def _runs(words: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """(number of the instruction, codes) of every `post.run`."""
    registers = dict.fromkeys(_ORDER_REGISTERS, 0)
    number = 0
    for word in words.tolist():
        engine, upper = word >> 28 & 7, word >> 22 & 63
        if not word >> 31:
            if engine == Engine.POST and upper in registers:
                registers[upper] = word & 0xFFFFF
            continue
        if engine == Engine.POST and word >> 24 & 15 == _RUN:
            codes = [registers[r] >> 4 * i & 15 for r in _ORDER_REGISTERS for i in range(5)]
            yield number, [code for code in codes if code]
        number += 1


def _chain(hw: HwSpec) -> list[str]:
    """Stages behind the array in the spec's order: those from which no array is reached."""
    modules = hw.dataflow.modules
    return [
        name
        for name, module in modules.items()
        if module.kind in _STAGES
        and not any(modules[n].kind == "ipa" for n in _reached(hw, [name], set(modules)))
    ]


def _way_mistake(hw: HwSpec, used: Sequence[str]) -> str | None:
    """Why data cannot go from memory over these modules and out, passing only what has `bypass`."""
    modules = hw.dataflow.modules
    passable = {name for name, module in modules.items() if module.bypass} | {hw.dataflow.root}
    at, rest = [hw.dataflow.root], list(used)
    if rest[0] == hw.dataflow.root:
        rest = rest[1:]
    for name in rest:
        if name not in _reached(hw, at, passable - set(used)):
            return f"{at[0]} does not lead to {name}"
        at = [name]
    if len(used) != len(set(used)):
        return "a module is used twice"
    units = [modules[n].unit for n in used if modules[n].unit is not None]
    if len(units) != len(set(units)):
        return "a unit is used twice"
    behind = _reached(hw, at, passable)
    if not modules[at[0]].exit and not any(modules[n].exit and n in passable for n in behind):
        return f"no exit behind {at[0]}"
    return None


def _reached(hw: HwSpec, starts: Sequence[str], passable: set[str]) -> set[str]:
    """What comes next behind the starts, over modules that may be passed."""
    edges = hw.dataflow.edges
    found: set[str] = set()
    todo = list(starts)
    while todo:
        for name in edges.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                if name in passable:
                    todo.append(name)
    return found
