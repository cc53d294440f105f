"""The orders of the post chain that the graph of a machine has: every way through it, edge by edge.

A reference for engines and compiler: derived from the spec alone, without `hw/spec/chain.py`.
"""

import itertools

from opu_fuse.quant import Domain
from opu_fuse.units import POST
from opu_fuse.units.base import ModuleKind, Stage

K = ModuleKind
REQUANT = "requant"
LONGEST = 5
SHIFTS = tuple(range(0, 4 * LONGEST, 4))
KINDS = {kind: unit.stage for unit in POST for kind in unit.runs}
_CACHE = {}


def orders_of(spec):
    """The orders of a machine, cached per spec."""
    if id(spec) not in _CACHE:
        # Holding the spec prevents Python from reusing its id.
        _CACHE[id(spec)] = spec, GraphOrders(spec)
    return _CACHE[id(spec)][1]


class GraphOrders:
    """codes: of stages by name; every: orders that are legal, as values of the register."""

    def __init__(self, spec):
        self.flow = spec.dataflow
        self.arrays = [n for n, m in self.flow.modules.items() if m.kind is K.IPA]
        after_array = [n for n in self.flow.modules if not self._leads_to_array(n)]
        stages = [n for n in after_array if self.flow.modules[n].kind in KINDS]
        self.codes = {name: code for code, name in enumerate([REQUANT, *stages], 1)}
        self._names = {code: name for name, code in self.codes.items()}
        self._paths = set()
        self._collect(self.flow.root, (), set())
        for array in self.arrays:
            self._collect(array, (REQUANT,), set())
        self.every = tuple(sorted(self.pack(names) for names in self._paths))
        lengths = sorted({len(names) for names in self._paths})
        self._by_length = [
            [order for order in self.every if len(self.names(order)) == length]
            for length in lengths
        ]

    def draw(self, rng):
        """An order; short ones are as likely as long ones."""
        return int(rng.choice(self._by_length[rng.integers(len(self._by_length))]))

    def pack(self, names):
        """Stages by name -> value of the register."""
        return sum(self.codes[name] << 4 * slot for slot, name in enumerate(names))

    def pack_kinds(self, kinds, *, product=False):
        """Stages by what they do -> value of the register: the first modules that do it, of the
        residual ones that which multiplies if `product`.
        """
        other = K.RES_ADDER if product else K.SE
        fit = [n for n in self.codes if n == REQUANT or self.flow.modules[n].kind is not other]
        return self.pack([next(n for n in fit if self._kind(n) is kind) for kind in kinds])

    def kinds(self, order):
        """Value of the register -> what its stages do, up to the first 0."""
        return tuple(self._kind(name) for name in self.names(order))

    def names(self, order):
        """Value of the register -> names of its stages, up to the first 0."""
        names = []
        while order & 15:
            names.append(self._names[order & 15])
            order >>= 4
        return tuple(names)

    def is_product(self, order):
        """Its (first) residual stage multiplies."""
        names = [self._names.get(order >> shift & 15) for shift in SHIFTS]
        kinds = [self.flow.modules[n].kind for n in names if n not in (None, REQUANT)]
        return next((kind is K.SE for kind in kinds if KINDS[kind] is Stage.RESIDUAL), False)

    def candidates(self):
        """All orders of three codes, and of five codes all that the machine has and one more."""
        known = range(len(self.codes) + 2)
        long = (
            sum(c << s for c, s in zip(codes, SHIFTS, strict=True))
            for codes in itertools.product(known, repeat=LONGEST)
        )
        return sorted({*range(1 << 12), *long})

    def _kind(self, name):
        return Stage.REQUANT if name == REQUANT else KINDS[self.flow.modules[name].kind]

    def _next(self, name):
        return [n for n in self.flow.edges.get(name, ()) if n in self.flow.modules]

    def _leads_to_array(self, name):
        seen, todo = {name}, [name]
        while todo:
            new = set(self._next(todo.pop())) - seen
            seen |= new
            todo += new
        return not seen.isdisjoint(self.arrays)

    def _collect(self, at, used, passed):
        """Collect every path from a module on. used: stages so far; passed: modules after the last
        of them, which a path passes once.
        """
        if self.flow.modules[at].exit:
            self._paths.add(used)
        for name in self._next(at):
            if name in self.codes and len(used) < LONGEST and not self._shares(name, used):
                self._collect(name, (*used, name), {name})
            if name not in passed and self._lets_pass(name, array=REQUANT in used):
                self._collect(name, used, {*passed, name})

    def _shares(self, name, used):
        """A unit, or the window sequencer, that the path has used already."""
        before = {n: self.flow.modules[n] for n in used if n != REQUANT}
        own = self.flow.modules[name]
        pools = own.kind is K.POOL and any(m.kind is K.POOL for m in before.values())
        return pools or (own.unit or name) in {m.unit or n for n, m in before.items()}

    def _lets_pass(self, name, *, array):
        """Data pass it without a stage: after the array sums pass its arithmetic, and paddings and
        what the store does are passed everywhere.
        """
        module = self.flow.modules[name]
        passes = module.kind in (K.PAD, K.UPSAMPLE) or (array and module.domain_in is Domain.ACC)
        return module.bypass or passes
