"""Whether a program runs every group along the graph of its machine, on the modules that it names.

An own reading of docs/isa.md and docs/hw-spec.md: of instructions, the words; of the machine, the
spec's modules and edges.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.isa.table import OPCODE, ORDER_REGISTERS, REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.plan import MachineProgram, Plan

_ARRAY = "the array"
_ON_ARRAY = ("ipa", "adder", "multiplier")
_STAGES = ("comparator", "pool", "res_adder", "se", "table", "prelu", "norm")
_ORDER_REGISTERS = [REGISTER[Engine.POST, name].index for name in ORDER_REGISTERS]
_RUN = OPCODE[Engine.POST, "run"].code


def order_mistake(dfg: Dfg, partition: Partition, plan: Plan, hw: HwSpec) -> str | None:
    """None, or the first group whose way is none. dfg: that of the partition, with copies.

    A norm in the passes of a sum follows what the sum goes through.
    """
    orders = _orders(plan, hw)
    every = {
        group.index: [(dfg[m.node].op, m.module) for m in group.matches if m.module is not None]
        for group in partition.groups
    }
    sums = {norm: group for group, norm in plan.two_results.items()}
    for group in partition.groups:
        used = every[group.index]
        names = [name for _, name in used]
        what = f"group {' + '.join(dfg[m.node].name for m in group.matches)!r} on {names}"
        wrong = _way_mistake(hw, names) if names else None
        if wrong is not None:
            return f"{what}: {wrong}"
        used = [*every.get(sums.get(group.index, -1), ()), *used]
        for emitted in sorted(orders[group.index]):
            way = [_array(hw) if name == _ARRAY else name for name in emitted]
            unnamed = set(hw.dataflow.modules) - {*_chain(hw), _array(hw)}
            wrong = _way_mistake(hw, way, unnamed) if _alike(hw, used, emitted) else "not the same"
            if wrong is not None:
                return f"{what} is emitted as {list(emitted)}: {wrong}"
    return None


def _alike(hw: HwSpec, used: Sequence[tuple[str, str]], emitted: Sequence[str]) -> bool:
    """Whether an order names what its operators were matched on: the array and the stages behind
    it. The array may stand for the first stage: an average whose window exceeds a tile. A sum may
    follow a maximum pool that ends the group: it joins the maxima of windows that two tiles see.
    """
    kinds, chain = {n: m.kind for n, m in hw.dataflow.modules.items()}, _chain(hw)
    array = any(kinds[name] in _ON_ARRAY for _, name in used)
    stages = [(op, name) for op, name in used if name in chain]
    wanted = [_ARRAY] * array + [name for _, name in stages]
    if not array and stages and stages[0][0] == "avg_pool" and emitted[0] == _ARRAY:
        wanted[0] = _ARRAY
    joins = used[-1:] and used[-1][0] == "max_pool" and kinds.get(emitted[-1]) == "res_adder"
    return list(emitted) in (wanted, [*wanted, emitted[-1]] if joins else wanted)


def _array(hw: HwSpec) -> str:
    return next(name for name, module in hw.dataflow.modules.items() if module.kind == "ipa")


def _orders(plan: Plan, hw: HwSpec) -> Mapping[int, set[tuple[str, ...]]]:
    """Group -> what its passes go through."""
    by_code = dict(enumerate((_ARRAY, *_chain(hw)), 1))
    found: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    for program in plan.segments:
        if isinstance(program, MachineProgram):
            for number, codes in _runs(program.words):
                found[program.groups[number]].add(tuple(by_code[code] for code in codes))
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
    """Stages behind the array in the spec's order, each as often as a pass uses it: those from
    which no array is reached.
    """
    modules = hw.dataflow.modules
    return [
        name
        for name, module in modules.items()
        if module.kind in _STAGES
        and not any(modules[n].kind == "ipa" for n in _reached(hw, [name], set(modules)))
        for _ in range(module.uses)
    ]


def _way_mistake(hw: HwSpec, used: Sequence[str], passed: Collection[str] = ()) -> str | None:
    """Why data cannot go from memory over these modules and out, past what has `bypass` or is in
    `passed`.
    """
    modules = hw.dataflow.modules
    passable = {n for n, m in modules.items() if m.bypass} | {hw.dataflow.root, *passed}
    at, rest = [hw.dataflow.root], list(used)
    if rest[:1] == [hw.dataflow.root]:
        rest = rest[1:]
    for name in rest:
        if name not in _reached(hw, at, passable):
            return f"{at[0]} does not lead to {name}"
        at = [name]
    if any(used.count(n) > modules[n].uses for n in used):
        return "a module is used too often"
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
