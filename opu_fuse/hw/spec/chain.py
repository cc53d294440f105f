"""The chains of a machine: the modules of its graph after and before the array.

A code of `order` is a module. What may follow what is what the graph says: a stage is reached along
edges over modules that data may pass unused, and the last one is an exit or reaches one so. The
head (code 1) is in every machine: the requantiser, with the multiplier and adder of accumulators.
Paddings are part of the pool after them, an upsample of the store. Modules before the array need
no codes: all units do the same, and a pass uses the first ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from opu_fuse.hw.isa.table import (
    HEAD,
    HEAD_NAME,
    ORDER_CODE_BITS,
    ORDER_STAGES,
    PRE_UNITS,
    order_of,
    unit_params,
)
from opu_fuse.hw.spec.check_graph import predecessors, reachable, successors
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.quant import Domain
from opu_fuse.units import BY_KIND, BY_STAGE, POST
from opu_fuse.units.base import ModuleKind, Stage
from opu_fuse.units.params import PostParams
from opu_fuse.units.pool import PoolKind

K = ModuleKind
START = 0
"""Marks the position before the first stage of a pass in which the array does not run."""

_REMEMBERED = 64
PRE_KINDS = (K.ADDER, K.MULTIPLIER, K.SE, K.COMPARATOR)
"""Kinds of modules before the array."""

STAGE_OF = {kind: unit.stage for unit in POST if unit.stage for kind in unit.runs}
"""Kinds of modules that are stages."""


class PostModule(Struct, frozen=True, kw_only=True):
    """A stage of one machine.

    code: in `order`
    name: of the stage
    module: of the spec, which is as many stages as a pass may use it
    unit: the hardware, by the first stage that uses it
    bank: of the unit's registers
    product: of two maps
    """

    code: int
    name: str
    module: str
    stage: Stage
    unit: str
    bank: int = 0
    product: bool = False

    @property
    def resource(self) -> str:
        """Resource that a pass uses at most once: the unit, or the window sequencer."""
        return f"any {self.stage.name}" if BY_STAGE[self.stage].windows else self.unit


class PostChain:
    """Stages by code, and the orders that the graph has.

    units: the first module of every piece of hardware, the requantiser included
    follow: code -> codes that may come next (key `START`: without the array)
    ends: codes after which a pass may leave the chain
    front: modules before the array
    gates: whether one of them multiplies by a gate
    products: whether a stage multiplies two maps
    """

    def __init__(self, spec: HwSpec) -> None:
        flow = spec.dataflow
        head = PostModule(
            code=HEAD, name=HEAD_NAME, module=HEAD_NAME, stage=Stage.REQUANT, unit=HEAD_NAME
        )
        stages = [name for name in after_array(spec) if flow.modules[name].kind in STAGE_OF]
        self.modules = (head, *_modules(spec, stages))
        first: dict[str, PostModule] = {}
        self.units = tuple(m for m in self.modules if first.setdefault(m.unit, m) is m)
        self.by_code = {m.code: m for m in self.modules}
        self.by_name = {m.name: m for m in self.modules}
        paths = _Paths(spec, frozenset(stages))
        arrays = [name for name, module in flow.modules.items() if module.kind is K.IPA]
        starts = {
            START: [flow.root],
            HEAD: arrays,
            **{m.code: [m.module] for m in self.modules[1:]},
        }
        reached = {
            code: paths.after(names, at_root=code == START) for code, names in starts.items()
        }
        self.follow = {
            code: frozenset(m.code for m in self.modules if m.module in next_)
            for code, (next_, _) in reached.items()
        }
        self.pre_units = _pre_units(spec)
        self.front = frozenset(flow.modules) - set(after_array(spec)) - set(arrays)
        self.gates = any(flow.modules[name].kind is K.SE for name in self.front)
        self.products = any(module.product for module in self.modules)
        self.ends = frozenset(code for code, (_, ends) in reached.items() if ends)

    def banks(self, stage: Stage | None) -> int:
        """Units that do a kind of stage."""
        if stage is Stage.PRE:
            return self.pre_units
        return len({m.unit for m in self.modules if m.stage is stage})

    def pack(self, names: Iterable[str]) -> int:
        """Names of stages -> value of `order`. Raises ValueError for too many."""
        return pack_codes([self.by_name[name].code for name in names])

    def unpack(self, order: int) -> tuple[PostModule, ...]:
        """Value of a legal `order` -> its stages."""
        return tuple(self.by_code[code] for code in codes_of(order))

    def stages(self, order: int) -> tuple[Stage, ...]:
        """Value of a legal `order` -> what its stages do."""
        return tuple(self.by_code[code].stage for code in codes_of(order))

    def trailing_maximum(self, names: Sequence[str]) -> PostModule | None:
        """A unit that takes the maximum of the result of these stages and a second map, after them
        as the last stage; None without one.
        """
        adders = (m for m in self.modules if m.stage is Stage.RESIDUAL and not m.product)
        orders = ((m, self.mistake(self.pack((*names, m.name)))) for m in adders)
        return next((module for module, mistake in orders if mistake is None), None)

    @property
    def supports_pooling_halo(self) -> bool:
        """Whether every pool has such a unit after it."""
        adders = {m.code for m in self.modules if m.stage is Stage.RESIDUAL and not m.product}
        pools = [m for m in self.modules if m.stage is Stage.POOL]
        return all(self.follow[pool.code] & adders & self.ends for pool in pools)

    def mistake(self, order: int) -> str | None:
        """Why the graph has no such order, to follow "has order"; None if it has."""
        codes = codes_of(order)
        if order >> (ORDER_CODE_BITS * len(codes)):
            return "codes after its end"
        at, used = START, dict[str, str]()
        for code in codes:
            module = self.by_code.get(code)
            if module is None:
                return f"unknown stage {code}"
            if module.resource in used:
                other = used[module.resource]
                if other == module.name:
                    return f"{module.name} appears twice"
                return f"{other} and {module.name} share a unit, which a pass uses once"
            used[module.resource] = module.name
            if code == HEAD and at == START:
                at = HEAD
                continue
            if code not in self.follow[at]:
                return f"{self._stage_text(at)} does not lead to {module.name}"
            at = code
        return None if at in self.ends else f"{self._stage_text(at)} does not lead to an exit"

    def _stage_text(self, code: int) -> str:
        return "the start without the array" if code == START else self.by_code[code].name


class _Paths:
    """Path searches over the graph of a spec."""

    def __init__(self, spec: HwSpec, stages: frozenset[str]) -> None:
        self._modules, self._next, self._stages = spec.dataflow.modules, successors(spec), stages

    def after(self, names: Sequence[str], *, at_root: bool) -> tuple[set[str], bool]:
        """Stages that can follow one of these modules, and whether a pass may end there."""
        ends = any(self._modules[n].exit for n in names)
        next_: set[str] = set()
        seen, todo = set(names), list(names)
        while todo:
            for name in self._next[todo.pop()]:
                if name in seen:
                    continue
                seen.add(name)
                module = self._modules[name]
                if name in self._stages:
                    next_.add(name)
                ends = ends or (module.exit and self._carries(name, at_root=at_root))
                if self._passes(name, at_root=at_root):
                    todo.append(name)
        return next_, ends

    def _passes(self, name: str, *, at_root: bool) -> bool:
        """Whether data can pass through a module that is no stage of the pass."""
        return self._modules[name].bypass or (
            name not in self._stages and self._carries(name, at_root=at_root)
        )

    def _carries(self, name: str, *, at_root: bool) -> bool:
        """Whether a pass uses a module without a stage for it: what the head, the address generator
        of a pool, the store and, before the array, data fetch do.
        """
        module = self._modules[name]
        if module.bypass or module.kind in (K.PAD, K.UPSAMPLE, K.MEM_WR, K.NOP):
            return True
        return not at_root and module.domain_in is Domain.ACC


_CHAINS: dict[int, tuple[HwSpec, PostChain]] = {}
"""By identity: a spec's hash is that of its whole text, and every instruction asks."""


def chain_of(spec: HwSpec) -> PostChain:
    """The post chain of a checked spec."""
    result = _CHAINS.get(id(spec))
    if result is None:
        if len(_CHAINS) >= _REMEMBERED:
            _CHAINS.clear()
        result = _CHAINS[id(spec)] = (spec, PostChain(spec))
    return result[1]


def pool_kind(p: PostParams, spec: HwSpec) -> PoolKind:
    """Kind of the pool of a legal pass; without one that of the first unit's registers."""
    pools = [m for m in chain_of(spec).unpack(order_of(p)) if m.stage is Stage.POOL]
    return PoolKind(unit_params(p, pools[0].bank if pools else 0)["pool_kind"])


def exclusive(spec: HwSpec) -> dict[str, tuple[str, ...]]:
    """Stages by name -> those, itself included, of which a pass uses one. Machines that are not
    built have only the limits that they name.
    """
    modules = chain_of(spec).modules[1:]
    used = {m.module: m.resource if spec.build else m.unit for m in modules}
    return {
        name: tuple(n for n, other in used.items() if other == own) for name, own in used.items()
    }


def stage_name(module: str, use: int) -> str:
    """Name of a module's stage; each further use in a pass is a stage of its own."""
    return f"{module}@{use}" if use else module


def after_array(spec: HwSpec) -> list[str]:
    """Modules from which data cannot reach the array, in the spec's order."""
    arrays = [n for n, m in spec.dataflow.modules.items() if m.kind is K.IPA]
    before = reachable(predecessors(spec), arrays)
    return [name for name in spec.dataflow.modules if name not in before]


def _pre_units(spec: HwSpec) -> int:
    """Units of the pre chain that the longest way through the modules before the array takes: one
    scales and shifts every channel, then clamps.
    """
    flow, edges = spec.dataflow, successors(spec)
    array = {n for n, m in flow.modules.items() if m.kind is K.IPA}.union(after_array(spec))
    uses = {n: m.uses for n, m in flow.modules.items() if n not in array and m.kind in PRE_KINDS}

    def next_modules(name: str) -> set[str]:
        """Modules that come next, over others that are not used."""
        result, todo = set[str](), [name]
        while todo:
            at = todo.pop()
            if at == name or at not in uses or flow.modules[at].bypass:
                new = set(edges[at]) - result - array - {name}
                result |= new
                todo += new
        return result & uses.keys()

    @cache
    def longest(name: str, used: frozenset[tuple[str, int]]) -> int:
        """Units from a module on; used: (module, how often) so far."""
        clamped = name == flow.root or flow.modules[name].kind is K.COMPARATOR
        most, before = 0, dict(used)
        for target in follow[name]:
            count = before.get(target, 0) + 1
            if count <= uses[target]:
                own = clamped or flow.modules[target].kind is not K.COMPARATOR
                now = frozenset((before | {target: count}).items())
                most = max(most, own + longest(target, now))
        return most

    if spec.buffers.pre is None or flow.root not in edges or sum(uses.values()) > PRE_UNITS:
        return 0
    follow = {name: next_modules(name) for name in (flow.root, *uses)}
    return longest(flow.root, frozenset())


def codes_of(order: int) -> list[int]:
    """Codes up to the first 0, known or not."""
    mask = (1 << ORDER_CODE_BITS) - 1
    codes = [order >> (ORDER_CODE_BITS * i) & mask for i in range(ORDER_STAGES)]
    return codes[: codes.index(0)] if 0 in codes else codes


def pack_codes(codes: Sequence[int]) -> int:
    """Codes -> value of `order`, first stage lowest."""
    if len(codes) > ORDER_STAGES:
        raise ValueError(f"{len(codes)} post stages, an order holds {ORDER_STAGES}")
    return sum(code << (ORDER_CODE_BITS * i) for i, code in enumerate(codes))


def _modules(spec: HwSpec, names: Sequence[str]) -> Iterator[PostModule]:
    units: dict[Stage, list[str]] = {}
    first: dict[str, str] = {}
    stages = [  # a pass has no slot for more
        (name, use)
        for name in names
        for use in range(min(spec.dataflow.modules[name].uses, ORDER_STAGES))
    ]
    for code, (owner, use) in enumerate(stages, HEAD + 1):
        name = stage_name(owner, use)
        module = spec.dataflow.modules[owner]
        stage = STAGE_OF[module.kind]
        unit = name if module.unit is None else first.setdefault(module.unit, name)
        known = units.setdefault(stage, [])
        if unit not in known:
            known.append(unit)
        yield PostModule(
            code=code,
            name=name,
            module=owner,
            stage=stage,
            unit=unit,
            bank=known.index(unit),
            product="multiply" in BY_KIND[module.kind].runs[module.kind],
        )
