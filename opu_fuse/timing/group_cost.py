"""What one group costs: predicted cycles and DRAM bytes of its best tile, by itself.

Only the structure is read (`geometry`), so a float model and its quantised form cost the same.
Machines that can be partitioned for but not built may run operators that no geometry describes
(concat, upsample, channel multiply, a pool before the array). Such *riders* work while data
passes: they cost the bytes by which they widen what is read or stored, at the memory's rate.
"""

import math
import operator
from collections.abc import Hashable, Sequence

from msgspec import Struct
from msgspec.structs import astuple

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.integer import ACCUMULATING
from opu_fuse.dfg.views import elements, feature_shape
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import LAYOUT, map_lanes
from opu_fuse.lowering.handlers import OPERATORS
from opu_fuse.lowering.pass_geometry import group_geometry
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.tile import ceil_div

STAGES = OPERATORS - {*LAYOUT, "batch_norm"}
POOLS = frozenset({"max_pool", "avg_pool"})


class Cost(Struct, frozen=True, order=True):
    """Cost of groups, compared field by field in this order.

    misfits: groups that fit no tile, each worse than any number of cycles;
    host: operators on the host;
    cycles, dram_bytes: predicted sums;
    groups: passes through the machine, which break a tie.
    """

    misfits: int = 0
    host: int = 0
    cycles: int = 0
    dram_bytes: int = 0
    groups: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*map(operator.sub, astuple(self), astuple(other)))

    def runs_more_than(self, other: "Cost") -> bool:
        """Whether fewer groups fit no tile or, if as many, fewer operators run on the host."""
        return (self.misfits, self.host) < (other.misfits, other.host)


NOTHING = Cost()
ON_HOST = Cost(host=1)
MISFIT = Cost(misfits=1, groups=1)


Price = tuple[int, int] | DoesNotFit
"""(cycles, DRAM bytes), or why no tile fits."""


class GroupCosts:
    """Costs of groups of one DFG on one machine.

    Networks repeat themselves: a group is priced once per form, which is all that its price depends
    on (operators, attributes, shapes, and which operands are the same value).
    """

    def __init__(self, dfg: Dfg, hw: HwSpec) -> None:
        self._dfg = dfg
        self._hw = hw
        mapped = hw.dataflow.operators.keys() & LAYOUT
        self._lanes = map_lanes(dfg, hw, {n.index for n in dfg.calls if n.op in mapped})
        self._priced: dict[tuple[Hashable, ...], Price] = {}
        self._forms: dict[int, int] = {}
        self._interned: dict[Hashable, int] = {}

    def of(self, members: Sequence[int]) -> Cost:
        """Cost of a group, members in pipeline order, owned biases included; `MISFIT` when no tile
        fits.
        """
        result = self._find(members)
        if isinstance(result, DoesNotFit):
            return MISFIT
        return Cost(cycles=result[0], dram_bytes=result[1], groups=1)

    def misfit(self, members: Sequence[int]) -> str | None:
        """What does not fit, as a sentence without its subject; None when a tile fits."""
        result = self._find(members)
        return result.what if isinstance(result, DoesNotFit) else None

    def _find(self, members: Sequence[int]) -> Price:
        key = self._form_of_group(members)
        if key not in self._priced:
            self._priced[key] = self._price(members)
        return self._priced[key]

    def _form_of_group(self, members: Sequence[int]) -> tuple[Hashable, ...]:
        """Forms of its operators, and for each which values it reads, numbered as they are met."""
        numbers: dict[int, int] = {}
        results: list[Hashable] = []
        for index in members:
            form = self._forms.get(index)
            if form is None:
                key = self._form(self._dfg[index])
                form = self._forms[index] = self._interned.setdefault(key, len(self._interned))
            results.append(form)
            for operand in elements(self._dfg, index):
                source = self._dfg.base(operand)
                results.append(numbers.setdefault(source, len(numbers)))
            numbers[index] = len(numbers)
        return tuple(results)

    def _form(self, node: Node) -> Hashable:
        dfg = self._dfg
        operands = tuple(
            (dfg[i].kind, dfg[i].shape, dfg[dfg.base(i)].shape) for i in elements(dfg, node.index)
        )
        attrs = tuple(sorted(node.attrs.items()))
        return node.op, node.owner is None, node.shape, node.access, attrs, operands

    def _price(self, members: Sequence[int]) -> Price:
        nodes = [node for node in (self._dfg[i] for i in members) if not node.is_virtual]
        core = _core(nodes)
        geometry = None
        cycles, dram_bytes = 0, 0
        if core:
            try:
                members = [n.index for n in core]
                geometry = group_geometry(self._dfg, members, self._hw, self._lanes)
                assert geometry is not None
                for _, shape in geometry.phases:
                    _, best = choose_tile("", shape, self._hw)
                    cycles += math.ceil(best.total_cycles)
                    dram_bytes += best.dram_bytes
            except DoesNotFit as error:
                return error
        if len(core) == len(nodes):
            return cycles, dram_bytes
        # Maps whose bytes the geometry's estimate holds already:
        counted = () if geometry is None else (*geometry.operands, geometry.output)
        extra = max(0, self._moved(nodes) - sum(map(self._map_bytes, counted)))
        return cycles + math.ceil(extra / self._hw.dram.rate), dram_bytes + extra

    def _moved(self, nodes: Sequence[Node]) -> int:
        """Bytes of all maps that a group reads from memory, and of the one it stores."""
        inside = {n.index for n in nodes}
        read: dict[int, None] = {}
        for node in nodes:
            for operand in elements(self._dfg, node.index):
                source = self._dfg.base(operand)
                if self._dfg[source].kind is not Kind.CONST and source not in inside:
                    read[source] = None
        return sum(self._map_bytes(i) for i in (*read, nodes[-1].index))

    def _map_bytes(self, index: int) -> int:
        channels, rows, cols = feature_shape(self._dfg[index].shape)
        return ceil_div(channels, self._hw.word_channels) * rows * cols * self._hw.word_bytes


def _core(nodes: Sequence[Node]) -> list[Node]:
    """The operators of a group that its geometry describes, the array's in front; riders left
    out.
    """
    array = next((i for i, n in enumerate(nodes) if n.op in ACCUMULATING), 0)
    first = array - 1 if array and nodes[array - 1].op == "pad" else array
    core: list[Node] = []
    taken: set[str] = set()
    for node in nodes[first:]:
        kind = "pool" if node.op in POOLS else node.op
        if node.owner is not None or kind in {"relu", "clip", "leaky_relu"}:
            core.append(node)
        elif _fits_once(node, kind, core, taken):
            core.append(node)
            taken.add(kind)
    return core


def _fits_once(node: Node, kind: str, core: Sequence[Node], taken: set[str]) -> bool:
    """Each kind of stage once; a pad only in front; a sum of two computed maps only."""
    if node.op not in STAGES or kind in taken or (node.op == "pad" and core):
        return False
    if node.op == "multiply":
        return Access.FULL in node.access and len(set(node.operands)) == len(node.operands)
    return node.op != "add" or all(access is Access.FULL for access in node.access)
