"""The post chain of a machine: the modules of its graph behind the array, as instructions say.

A code of `order` is a module. What may follow what is what the graph says: a stage is reached along
edges over modules that data may pass unused, and the last one is an exit or reaches one so. The
head (code 1) is in every machine: the requantiser, with the multiplier and adder of accumulators.
Paddings are part of the pool behind them, an upsample of the store.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opu_fuse.hw.check_graph import predecessors, reachable, successors
from opu_fuse.hw.isa import HEAD, HEAD_NAME, ORDER_CODE_BITS, ORDER_STAGES, Stage
from opu_fuse.hw.spec import HwSpec, ModuleKind
from opu_fuse.quant import Domain

K = ModuleKind
START = 0
"""Stands for the place before the first stage where the array did not run."""

_REMEMBERED = 64

STAGE_OF = {
    K.COMPARATOR: Stage.ACT,
    K.POOL: Stage.POOL,
    K.RES_ADDER: Stage.RESIDUAL,
    K.SE: Stage.RESIDUAL,
    K.TABLE: Stage.TABLE,
}
"""Kinds of modules that are stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostModule:
    """A stage of one machine. code: in `order`; name: in the spec; unit: what it shares with the
    modules that name the same one, a pass goes through it once; product: of two maps.
    """

    code: int
    name: str
    stage: Stage
    unit: str
    product: bool = False


class PostChain:
    """Stages by code, and the orders that the graph has. follow: code -> codes that may come next
    (key `START`: without the array); ends: codes behind which a pass may leave the chain.
    """

    def __init__(self, spec: HwSpec) -> None:
        flow = spec.dataflow
        head = PostModule(code=HEAD, name=HEAD_NAME, stage=Stage.REQUANT, unit="")
        stages = [name for name in behind_array(spec) if flow.modules[name].kind in STAGE_OF]
        self.modules = (head, *(_module(spec, i, n) for i, n in enumerate(stages, HEAD + 1)))
        self.by_code = {m.code: m for m in self.modules}
        self.by_name = {m.name: m for m in self.modules}
        ways = _Ways(spec, frozenset(stages))
        arrays = [name for name, module in flow.modules.items() if module.kind is K.IPA]
        starts = {
            START: [flow.root],
            HEAD: arrays,
            **{self.by_name[name].code: [name] for name in stages},
        }
        found = {code: ways.behind(names, at_root=code == START) for code, names in starts.items()}
        self.follow = {
            code: frozenset(self.by_name[name].code for name in next_)
            for code, (next_, _) in found.items()
        }
        self.ends = frozenset(code for code, (_, ends) in found.items() if ends)

    def pack(self, names: Iterable[str]) -> int:
        """Names of stages -> value of `order`. Raises ValueError for too many."""
        return pack_codes([self.by_name[name].code for name in names])

    def unpack(self, order: int) -> tuple[PostModule, ...]:
        """Value of a legal `order` -> its stages."""
        return tuple(self.by_code[code] for code in codes_of(order))

    def stages(self, order: int) -> tuple[Stage, ...]:
        """Value of a legal `order` -> what its stages do."""
        return tuple(self.by_code[code].stage for code in codes_of(order))

    def mistake(self, order: int) -> str | None:
        """Why the graph has no such order, to follow "has order"; None if it has."""
        codes = codes_of(order)
        if order >> (ORDER_CODE_BITS * len(codes)):
            return "codes behind its end"
        at, units = START, set[str]()
        for code in codes:
            module = self.by_code.get(code)
            if module is None:
                return f"unknown stage {code}"
            if module.unit in units:
                return f"{module.name} shares its unit with a stage before it, or stands twice"
            units.add(module.unit)
            if code == HEAD and at == START:
                at = HEAD
                continue
            if code not in self.follow[at]:
                return f"{self._place(at)} does not lead to {module.name}"
            at = code
        return None if at in self.ends else f"{self._place(at)} does not lead to an exit"

    def _place(self, code: int) -> str:
        return "the start without the array" if code == START else self.by_code[code].name


class _Ways:
    """Searches over the graph of a spec from place to place."""

    def __init__(self, spec: HwSpec, stages: frozenset[str]) -> None:
        self._modules, self._next, self._stages = spec.dataflow.modules, successors(spec), stages

    def behind(self, names: Sequence[str], *, at_root: bool) -> tuple[set[str], bool]:
        """Stages that come next behind one of these modules, and whether a pass may end there."""
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
        """Whether data goes on behind a module that is no stage of the pass."""
        return self._modules[name].bypass or (
            name not in self._stages and self._carries(name, at_root=at_root)
        )

    def _carries(self, name: str, *, at_root: bool) -> bool:
        """Whether a pass uses a module without a stage for it: what the head, the walk of a pool,
        the store and, in front of the array, data fetch do.
        """
        module = self._modules[name]
        if module.bypass or module.kind in (K.PAD, K.UPSAMPLE, K.MEM_WR, K.NOP):
            return True
        return not at_root and module.domain_in is Domain.ACC


_CHAINS: dict[int, tuple[HwSpec, PostChain]] = {}
"""By identity: a spec's hash is that of its whole text, and every instruction asks."""


def chain_of(spec: HwSpec) -> PostChain:
    """The post chain of a checked spec."""
    found = _CHAINS.get(id(spec))
    if found is None:
        if len(_CHAINS) >= _REMEMBERED:
            _CHAINS.clear()
        found = _CHAINS[id(spec)] = (spec, PostChain(spec))
    return found[1]


def behind_array(spec: HwSpec) -> list[str]:
    """Modules from which data cannot reach the array, in the spec's order."""
    arrays = [n for n, m in spec.dataflow.modules.items() if m.kind is K.IPA]
    before = reachable(predecessors(spec), arrays)
    return [name for name in spec.dataflow.modules if name not in before]


def codes_of(order: int) -> list[int]:
    """Codes up to the first 0, known or not."""
    mask = (1 << ORDER_CODE_BITS) - 1
    codes = [order >> (ORDER_CODE_BITS * i) & mask for i in range(ORDER_STAGES)]
    return codes[: codes.index(0)] if 0 in codes else codes


def pack_codes(codes: Sequence[int]) -> int:
    """Codes -> value of `order`, first stage lowest."""
    if len(codes) > ORDER_STAGES:
        raise ValueError(f"{len(codes)} post stages, the register holds {ORDER_STAGES}")
    return sum(code << (ORDER_CODE_BITS * i) for i, code in enumerate(codes))


def _module(spec: HwSpec, code: int, name: str) -> PostModule:
    module = spec.dataflow.modules[name]
    return PostModule(
        code=code,
        name=name,
        stage=STAGE_OF[module.kind],
        unit=module.unit or name,
        product=module.kind is K.SE,
    )
