"""What the RTL can build: rules for `build: true`, in addition to those of `check.py`."""

from collections.abc import Callable, Iterator

from opu_fuse.hw.problem import Problem
from opu_fuse.hw.spec import Access, HwSpec, ModuleKind
from opu_fuse.quant import Domain

K = ModuleKind
NOT_BUILT = "or set `build: false` to partition only"

RTL_RANK: dict[ModuleKind, int] = {
    K.MEM_RD: 0,
    K.PAD: 1,
    K.IPA: 2,
    K.ADDER: 3,
    K.COMPARATOR: 4,
    K.POOL: 4,
    K.RES_ADDER: 4,
}
"""Order in which the RTL passes data on; modules of the last rank (the post chain) run in any
order.
"""
_POST_RANK = 4

RTL_OPERATORS = (
    "conv",
    "dense",
    "add",
    "relu",
    "clip",
    "leaky_relu",
    "max_pool",
    "avg_pool",
    "pad",
)


def _modes(spec: HwSpec) -> Iterator[Problem]:
    """Modes share the adder trees: ic = multipliers × a power of two; ic and oc divide a word; one
    pixel per cycle.
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
        if mode.px != 1:
            yield _no(
                ("array", "modes", index, "px"),
                f"mode {index}: {mode.px} pixels per cycle",
                "use px: 1",
            )


def _widths(spec: HwSpec) -> Iterator[Problem]:
    """Bus, weight words and rows divide each other; post takes whole words; two psum banks."""
    width, bus = spec.buffers.weight.width, spec.dram.bus_bytes
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
    if spec.array.row_bytes % width:
        yield _no(
            ("buffers", "weight", "width"),
            f"a weight row of {spec.array.row_bytes} bytes is no whole number of "
            f"{width}-byte words",
            "choose a divisor of the row",
        )
    if spec.buffers.psum.banks != 2:
        yield _no(
            ("buffers", "psum", "banks"), f"{spec.buffers.psum.banks} partial-sum banks", "use 2"
        )
    if spec.post.lanes != spec.word_channels:
        yield _no(
            ("post", "lanes"),
            f"{spec.post.lanes} post lanes for words of {spec.word_channels} channels",
            f"use {spec.word_channels}",
        )
    if spec.numeric.multiplier_bits == 0:
        yield _no(
            ("numeric", "multiplier_bits"),
            "multiplier_bits 0 (shifts without multipliers)",
            "use 1 to 16",
        )


def _modules(spec: HwSpec) -> Iterator[Problem]:
    """One module of each kind the RTL has, with the domains and operands it has."""
    flow = spec.dataflow
    seen: dict[ModuleKind, str] = {}
    for name, module in flow.modules.items():
        path = ("dataflow", "modules", name)
        if module.kind not in RTL_RANK:
            kinds = ", ".join(RTL_RANK)
            yield _no(
                (*path, "kind"),
                f"module {name!r}: the RTL has no {module.kind}",
                f"kinds it has: {kinds}",
            )
            continue
        if module.kind in seen:
            yield _no(
                path,
                f"{seen[module.kind]!r} and {name!r} are both {module.kind}, the RTL has one",
                "remove one",
            )
        seen.setdefault(module.kind, name)
        domain = Domain.ACC if module.kind in (K.IPA, K.ADDER) else Domain.ACT
        if module.domain_out is not domain:
            yield _no(
                path,
                f"module {name!r} ({module.kind}) gives {module.domain_out}",
                f"set domain: {domain}",
            )
        if module.kind is K.ADDER and module.operand is not Access.PER_CHANNEL:
            yield _no(
                (*path, "operand"),
                f"module {name!r}: the bias adder reads per_channel",
                "set it so",
            )
        if module.uses != 1:
            yield _no(
                (*path, "uses"), f"module {name!r} is used {module.uses} times per pass", "use 1"
            )
        if module.tap:
            yield _no((*path, "tap"), f"module {name!r} has a tap", "remove it")
        if module.kind is K.POOL and module.limits.dilation != 1:
            yield _no(
                (*path, "limits"),
                f"module {name!r}: pooling windows are not dilated",
                "set limits.dilation to 1",
            )


def _order(spec: HwSpec) -> Iterator[Problem]:
    """Edges follow memory -> pad -> ipa -> adder -> post chain; inside the post chain any order."""
    flow = spec.dataflow
    for source, targets in flow.edges.items():
        for index, target in enumerate(targets):
            if source not in flow.modules or target not in flow.modules:
                continue
            ends = [RTL_RANK.get(flow.modules[name].kind, -1) for name in (source, target)]
            if -1 in ends or ends[0] < ends[1] or ends == [_POST_RANK, _POST_RANK]:
                continue
            yield _no(
                ("dataflow", "edges", source, index),
                f"edge {source} -> {target} runs against the order of the RTL "
                "(mem_rd, pad, ipa, adder, then comparator, pool and res_adder in any order)",
                "remove it",
            )


def _operators(spec: HwSpec) -> Iterator[Problem]:
    """Operators the RTL has no datapath for stay unmapped."""
    for operator, kinds in spec.dataflow.operators.items():
        wrong = operator not in RTL_OPERATORS or (operator == "avg_pool" and K.IPA in kinds)
        if wrong and all(kind in RTL_RANK for kind in kinds):
            kind_text = ", ".join(kinds)
            yield _no(
                ("dataflow", "operators", operator),
                f"operator {operator!r} on {kind_text}",
                "remove the line",
            )


def _no(path: tuple[str | int, ...], what: str, fix: str) -> Problem:
    return Problem(path=path, what=f"the RTL cannot build this: {what}", help=f"{fix}, {NOT_BUILT}")


RTL_RULES: tuple[Callable[[HwSpec], Iterator[Problem]], ...] = (
    _modes,
    _widths,
    _modules,
    _order,
    _operators,
)
