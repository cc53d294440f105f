"""What the RTL can build: rules for `build: true`, in addition to those of `check.py`."""

import itertools
from collections.abc import Callable, Iterator

from opu_fuse.hw.chain import PRE_KINDS, STAGE_OF, chain_of
from opu_fuse.hw.check_graph import predecessors, reachable
from opu_fuse.hw.isa import PRE_UNITS, UNITS_PER_STAGE
from opu_fuse.hw.problem import Problem
from opu_fuse.hw.spec import HwSpec
from opu_fuse.quant import Domain
from opu_fuse.units.base import Access, ModuleKind

K = ModuleKind
NOT_BUILT = "or set `build: false` to partition only"

ARITHMETIC = (K.MULTIPLIER, K.ADDER)
POST_CHAIN = (*STAGE_OF, K.PAD)
ORDER = "memory, pre chain, pad, ipa, multiplier and adder, post chain, upsample"
_PRE, _PAD, _IPA, _ACC, _POST, _UPSAMPLE = range(1, 7)


def _rank(spec: HwSpec, name: str) -> int | None:
    """Position of a module in the RTL's order; None for what it cannot have there. Modules before
    the array form the pre chain, those behind it without accumulators the post chain.
    """
    module = spec.dataflow.modules[name]
    upstream = name in _before_array(spec)
    match module.kind:
        case K.MEM_RD:
            return 0
        case K.IPA:
            return _IPA
        case K.UPSAMPLE:
            return _UPSAMPLE
        case K.PAD if upstream:
            return _PAD
        case kind if upstream:
            return _PRE if kind in PRE_KINDS else None
        case kind if kind in ARITHMETIC:
            return _ACC
        case kind:
            return _POST if kind in POST_CHAIN else None


def _of_kind(spec: HwSpec, kind: ModuleKind, rank: int) -> list[str]:
    """Modules of a kind at a place in the RTL's order."""
    modules = spec.dataflow.modules
    return [n for n, m in modules.items() if m.kind is kind and _rank(spec, n) == rank]


def _before_array(spec: HwSpec) -> set[str]:
    """Modules from which data can reach the array."""
    feeding = predecessors(spec)
    arrays = [n for n, m in spec.dataflow.modules.items() if m.kind is K.IPA]
    return reachable(feeding, [source for name in arrays for source in feeding[name]])


def _modes(spec: HwSpec) -> Iterator[Problem]:
    """Modes share the adder trees: ic = multipliers × a power of two; both divide a word. One of
    them makes one pixel per cycle: most operators have no other.
    """
    word = spec.word_channels
    for index, mode in enumerate(spec.array.modes):
        trees, rest = divmod(mode.ic, spec.array.multipliers)
        if rest or trees & (trees - 1) or not trees:
            yield _no(
                ("array", "modes", index, "ic"),
                f"mode {index}: ic {mode.ic} is not {spec.array.multipliers} "
                "multipliers times a power of two",
                "choose such an ic",
            )
        for name in ("ic", "oc"):
            value = getattr(mode, name)
            if value > word or word % value:
                yield _no(
                    ("array", "modes", index, name),
                    f"mode {index}: {name} {value} does not divide a word of {word} channels",
                    "choose a divisor",
                )
        narrowest = min(m.oc for m in spec.array.modes)
        if mode.oc % narrowest:
            yield _no(
                ("array", "modes", index, "oc"),
                f"mode {index}: oc {mode.oc} is no multiple of the smallest oc {narrowest}",
                "choose a multiple",
            )
        yield from _pixels(spec, index)
    if all(mode.px > 1 for mode in spec.array.modes):
        yield _no(("array", "modes"), "no mode of one pixel per cycle", "add one that has no `px`")


def _pixels(spec: HwSpec, index: int) -> Iterator[Problem]:
    """Modes of several pixels pack their sums into one word and their segments into one."""
    mode, word = spec.array.modes[index], spec.word_channels
    path = ("array", "modes", index, "px")
    if mode.px == 1:
        return
    if mode.px not in (2, 4):
        yield _no(path, f"mode {index}: {mode.px} pixels per cycle", "use 1, 2 or 4")
    elif word != spec.word_bytes:
        yield _no(
            path,
            f"mode {index}: {mode.px} pixels per cycle in words of {word} channels",
            "use px: 1, or a power of two of channels",
        )
    elif mode.px * max(mode.ic, mode.oc) > word or spec.array.units % mode.px:
        yield _no(
            path,
            f"mode {index}: {mode.px} pixels of {mode.ic} and {mode.oc} channels exceed a word "
            f"of {word}",
            "choose narrower modes",
        )


def _widths(spec: HwSpec) -> Iterator[Problem]:
    """Eights divide a word, bus, weight words and rows each other, depthwise parts and post lanes a
    word; partial sums lie in two equal memories.
    """
    width, bus = spec.buffers.weight.width, spec.dram.bus_bytes
    if spec.word_channels % 8:
        yield _no(
            ("word_channels",),
            f"words of {spec.word_channels} channels, whose parameters fill no whole words",
            "use a multiple of 8",
        )
    if bus > spec.word_bytes:
        yield _no(
            ("dram", "bus_bytes"),
            f"bus of {bus} bytes is wider than a feature word ({spec.word_bytes} bytes)",
            f"use at most {spec.word_bytes}",
        )
    if width & (width - 1) or width > 64 or width % bus:
        yield _no(
            ("buffers", "weight", "width"),
            f"weight words of {width} bytes are no power-of-two multiple of the "
            f"{bus}-byte bus up to 64",
            f"use {bus}",
        )
    for row in sorted({spec.array.row_bytes} | {m.ic * m.oc for m in spec.array.modes}):
        if row % width:
            yield _no(
                ("buffers", "weight", "width"),
                f"a weight row of {row} bytes is no whole number of {width}-byte words",
                "choose a divisor of the row",
            )
    if spec.buffers.psum.banks > 2 or spec.buffers.psum.words % 2:
        yield _no(
            ("buffers", "psum"),
            f"partial sums of {spec.buffers.psum.words} words, banks: {spec.buffers.psum.banks}",
            "use an even number of words and 1 or 2 banks",
        )
    if spec.array.depthwise and spec.word_channels % min(spec.array.units, spec.word_channels):
        yield _no(
            ("array", "depthwise"),
            f"depthwise with {spec.array.units} units and words of {spec.word_channels} channels",
            "choose units that divide a word",
        )
    yield from _lanes(spec)
    yield from _tables(spec)
    yield from _table_terms(spec)


def _lanes(spec: HwSpec) -> Iterator[Problem]:
    """Behind the array lie all channels of a word, a half, a quarter or an eighth of them, in a
    multiple of 8; units with a second operand have such a share where the chain takes whole words.
    """
    word, lanes = spec.word_channels, spec.post.lanes
    shares = [part for part in (word, word // 2, word // 4, word // 8) if part and part % 8 == 0]
    for field, given, fit, what in (
        ("lanes", lanes, shares, f"words of {word} channels"),
        (
            "residual_lanes",
            spec.residual_lanes,
            shares if lanes == word else [lanes],
            f"{lanes} post lanes",
        ),
    ):
        if shares and given not in fit:
            yield _no(
                ("post", field),
                f"{given} {'post ' * (field == 'lanes')}{field.replace('_', ' ')} for {what}",
                f"use {' or '.join(map(str, fit))}",
            )


def _tables(spec: HwSpec) -> Iterator[Problem]:
    """Products of a sum of two maps stand in slices or in tables, those of a product of two maps in
    both; powers of two are no products.
    """
    if not spec.post.residual_tables:
        return
    for has, what in (
        (_of_kind(spec, K.SE, _POST), "products of maps, which take a slice each"),
        (spec.numeric.multiplier_bits == 0, "powers of two, which are shifts"),
    ):
        if has:
            yield _no(
                ("post", "residual_tables"),
                f"tables for the residual unit, and {what}",
                "leave residual_tables out",
            )


SUMMED_IN_SLICES = 32
"""Products of a unit whose sum is there when products in tables are."""


def _table_terms(spec: HwSpec) -> Iterator[Problem]:
    """Products of the array stand in tables by twos, and in slices, two at least."""
    products, tables = spec.array.multipliers, spec.array.table_terms
    most = products - 2 - products % 2
    least = max(products - SUMMED_IN_SLICES, 2)
    least += least % 2
    if tables and (tables % 2 or not least <= tables <= most):
        fit = f"an even number from {least} to {most}" if least < most else f"{most}"
        yield _no(
            ("array", "table_terms"),
            f"{tables} of {products} products of a unit in tables",
            f"use {fit}" if least <= most else "leave table_terms out",
        )


def _extras(spec: HwSpec) -> Iterator[Problem]:
    """Pre chain and tables have their buffers, and no machine has the buffers alone."""
    pre = [n for n in spec.dataflow.modules if _rank(spec, n) == _PRE]
    rows = (
        ("pre", bool(pre), "modules before the array"),
        ("table", spec.has(K.TABLE), "table modules"),
    )
    for name, used, what in rows:
        there = getattr(spec.buffers, name) is not None
        if used != there:
            yield _no(
                ("buffers", name),
                f"{what}: {'some' if used else 'none'}, {name} buffer: "
                f"{'there' if there else 'none'}",
                "give both or neither",
            )


def _modules(spec: HwSpec) -> Iterator[Problem]:
    """One module of each kind outside the chains, domains and operands that the RTL has."""
    flow = spec.dataflow
    seen: dict[tuple[ModuleKind, int], str] = {}
    for name, module in flow.modules.items():
        path = ("dataflow", "modules", name)
        rank = _rank(spec, name)
        if rank is None:
            what = f"module {name!r}: no {module.kind} there"
            yield _no((*path, "kind"), what, f"keep to the order {ORDER}")
            continue
        other = seen.setdefault((module.kind, rank), name)
        if other != name and rank not in (_PRE, _POST):
            yield _no(
                path,
                f"{other!r} and {name!r} are both {module.kind}, the RTL has one there",
                "remove one",
            )
        domain = Domain.ACC if rank in (_IPA, _ACC) else Domain.ACT
        if module.domain_out is not domain:
            yield _no(
                path,
                f"module {name!r} ({module.kind}) gives {module.domain_out}",
                f"set domain: {domain}",
            )
        constants = module.kind in ARITHMETIC or (rank == _PRE and module.kind is K.SE)
        if constants and module.operand is not Access.PER_CHANNEL:
            yield _no(
                (*path, "operand"),
                f"module {name!r} ({module.kind}) has operand {module.operand or 'none'}",
                "say `operand: per_channel`",
            )
        yield from _uses(spec, name)
        if module.tap:
            what = f"module {name!r} has a tap, a pass stores one value"
            yield _no((*path, "tap"), what, "remove it")
        if module.kind is K.POOL and module.limits.dilation != 1:
            yield _no(
                (*path, "limits"),
                f"module {name!r}: pooling windows are not dilated",
                "set limits.dilation to 1",
            )


def _uses(spec: HwSpec, name: str) -> Iterator[Problem]:
    """A module that a pass comes to several times is as many units: of its own, in the pre chain or
    a stage of the post chain, and no pool.
    """
    module, rank = spec.dataflow.modules[name], _rank(spec, name)
    if module.uses == 1:
        return
    why = ""
    if module.kind is K.POOL:
        why = ", a pass pools once"
    elif rank != _PRE and (rank != _POST or module.kind not in STAGE_OF):
        why = f", there is one {module.kind}"
    elif module.unit is not None:
        why = f" and shares unit {module.unit!r}, of which a pass uses one module"
    if why:
        what = f"module {name!r} is used {module.uses} times per pass{why}"
        yield _no(("dataflow", "modules", name, "uses"), what, "use 1")


def _chains(spec: HwSpec) -> Iterator[Problem]:
    """The pre chain has at most 6 modules, the post chain 12, each counted as often as a pass may
    use it; those that name one unit do the same kind of stage.
    """
    flow = spec.dataflow
    pre = [n for n in flow.modules if _rank(spec, n) == _PRE]
    post = [n for n, m in flow.modules.items() if _rank(spec, n) == _POST and m.kind in STAGE_OF]
    for chain, names, most in (("pre", pre, PRE_UNITS), ("post", post, UNITS_PER_STAGE)):
        uses = [name for name in names for _ in range(min(flow.modules[name].uses, most + 1))]
        if len(uses) > most:
            yield _no(
                ("dataflow", "modules", uses[most]),
                f"{len(uses)} modules in the {chain} chain, at most {most}",
                "remove some" if len(uses) == len(names) else "remove some, or lower `uses`",
            )
    first: dict[str, str] = {}
    for name, module in flow.modules.items():
        if module.unit is None:
            continue
        path = ("dataflow", "modules", name, "unit")
        if name not in post:
            yield _no(path, f"module {name!r} is no stage of the post chain", "remove `unit`")
            continue
        other = flow.modules[first.setdefault(module.unit, name)]
        if STAGE_OF[other.kind] is not STAGE_OF[module.kind]:
            yield _no(
                path,
                f"a {other.kind} and a {module.kind} share no unit ({module.unit!r})",
                "give them two",
            )


def _gates(spec: HwSpec) -> Iterator[Problem]:
    """Before the array a gate is the one unit of a pass, but for the clamp that belongs to it."""
    flow = spec.dataflow
    named = {flow.root, *flow.edges, *itertools.chain.from_iterable(flow.edges.values())}
    if not named <= flow.modules.keys():
        return  # which another rule says
    units = chain_of(spec).pre_units
    for name in _of_kind(spec, K.SE, _PRE):
        if units != 1:
            module = flow.modules[name]
            yield _no(
                ("dataflow", "modules", name),
                f"module {name!r} ({module.kind}) stands before the array, where a pass can come "
                f"to {units} units",
                "leave out edges between it and multipliers or adders there, and from comparators "
                "to it",
            )


def _order(spec: HwSpec) -> Iterator[Problem]:
    """Edges follow memory -> pre chain -> pad -> ipa -> multiplier, adder -> post chain ->
    upsample; inside pre chain and post chain any order.
    """
    flow = spec.dataflow
    for source, targets in flow.edges.items():
        for index, target in enumerate(targets):
            if source not in flow.modules or target not in flow.modules:
                continue
            before, after = _rank(spec, source), _rank(spec, target)
            if before is None or after is None:
                continue
            if before < after or before == after in (_PRE, _ACC, _POST):
                continue
            against = f"runs against the order of the RTL ({ORDER})"
            if (before, after) == (_PAD, _PRE):
                against = "leads from a pad to the pre chain, which padding does not pass"
            yield _no(
                ("dataflow", "edges", source, index),
                f"edge {source} -> {target} {against}",
                "remove it",
            )


def _operators(spec: HwSpec) -> Iterator[Problem]:
    """Averages run in the post chain; the compiler moves those too large for it to the array.
    Activations are the comparators'; a table has the functions that these cannot do.
    """
    for operator, kind, instead in (
        ("avg_pool", K.IPA, K.POOL),
        *((name, K.TABLE, K.COMPARATOR) for name in ("relu", "clip", "leaky_relu")),
    ):
        if kind in spec.dataflow.operators.get(operator, ()):
            yield _no(
                ("dataflow", "operators", operator),
                f"{operator} mapped to the {kind}",
                f"map it to {instead}",
            )


def _no(path: tuple[str | int, ...], what: str, fix: str) -> Problem:
    return Problem(path=path, what=f"the RTL cannot build this: {what}", help=f"{fix}, {NOT_BUILT}")


RTL_RULES: tuple[Callable[[HwSpec], Iterator[Problem]], ...] = (
    _modes,
    _widths,
    _extras,
    _modules,
    _chains,
    _gates,
    _order,
    _operators,
)
