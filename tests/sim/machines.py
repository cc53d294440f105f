"""Machines for tests of single instructions, made from opu-tiny: every module, odd sizes."""

from dataclasses import replace

from opu_fuse.hw.spec.hw_spec import Array, Buffer, Dataflow, HwSpec, Mode, Module, WeightBuffer
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.units.base import Access, ModuleKind

K = ModuleKind
TINY = load_hw("opu-tiny")


def _every_module() -> Dataflow:
    """The graph of opu-tiny with every module, behind the array from each to each."""
    flow = TINY.dataflow
    more = {
        "res_add": replace(flow.modules["res_add"], unit="residual"),
        "table": Module(kind=K.TABLE, exit=True),
        "se": Module(kind=K.SE, operand=Access.FULL, unit="residual", exit=True),
        "upsample": Module(kind=K.UPSAMPLE, exit=True),
        "shift": Module(kind=K.ADDER, operand=Access.PER_CHANNEL, bypass=True),
        "early": Module(kind=K.COMPARATOR, bypass=True),
        "scale": Module(kind=K.MULTIPLIER, operand=Access.PER_CHANNEL, bypass=True),
    }
    front = {"concat": ("shift",), "shift": ("early",), "early": ("scale",), "scale": ("pad",)}
    post = ("compare", "pool", "res_add", "table", "se")
    edges = {name: (*(n for n in post if n != name), "upsample") for name in post}
    return replace(
        flow,
        modules={**flow.modules, **more},
        edges={**flow.edges, **front, "add": post, **edges},
    )


EVERY_MODULE = _every_module()
PRE_UNITS = 2
"""Before the array: `early` is the clamp of `shift`."""


def machine(name: str, lanes: int, array: Array, width: int) -> HwSpec:
    """opu-tiny with every module, another array and words of other sizes."""
    buffers = replace(
        TINY.buffers,
        weight=WeightBuffer(words=512, width=width),
        pre=Buffer(words=64),
        table=Buffer(words=600),
    )
    return replace(
        TINY,
        name=name,
        word_channels=lanes,
        array=array,
        buffers=buffers,
        dataflow=EVERY_MODULE,
    )


def modes(*rows: tuple[int, int, int]) -> tuple[Mode, ...]:
    return tuple(Mode(ic=ic, oc=oc, px=px) for ic, oc, px in rows)


def gated(spec: HwSpec) -> HwSpec:
    """A machine whose only unit before the array takes constants or a gate."""
    flow = spec.dataflow
    left = {n: m for n, m in flow.modules.items() if n != "shift"}
    gate = Module(kind=K.SE, operand=Access.PER_CHANNEL, bypass=True)
    front = {
        "concat": ("scale", "gate"),
        "scale": ("early",),
        "gate": ("early",),
        "early": ("pad",),
    }
    edges = {n: to for n, to in flow.edges.items() if n != "shift"}
    return replace(
        spec, dataflow=replace(flow, modules={**left, "gate": gate}, edges={**edges, **front})
    )


def unfolding(spec: HwSpec) -> HwSpec:
    """A machine whose load unfolds windows of images."""
    return replace(spec, buffers=replace(spec.buffers, image=Buffer(words=96, banks=1)))


def without(spec: HwSpec, *kinds: ModuleKind) -> HwSpec:
    """A machine without modules of these kinds."""
    flow = spec.dataflow
    left = {name: m for name, m in flow.modules.items() if m.kind not in kinds}
    return replace(spec, dataflow=replace(flow, modules=left))


BARE = replace(
    without(TINY, *(K.COMPARATOR, K.POOL, K.RES_ADDER, K.SE, K.TABLE, K.UPSAMPLE)),
    name="bare",
    array=replace(TINY.array, depthwise=False),
    buffers=replace(TINY.buffers, pre=None, table=None),
    post=replace(TINY.post, keep=False),
)
"""Load, conv, copy, requantise and store only."""

MACHINES = {
    spec.name: spec
    for spec in (
        machine(
            "full",
            8,
            Array(
                units=8,
                multipliers=4,
                modes=modes((8, 4, 1), (4, 8, 1), (4, 4, 2), (8, 2, 2), (4, 2, 4)),
                depthwise=True,
            ),
            width=4,
        ),
        machine(
            "odd",  # words of 24 lanes in 32 bytes; two depthwise parts a word, 9 of 12 products
            24,
            Array(units=12, multipliers=12, modes=modes((12, 12, 1), (24, 6, 1)), depthwise=True),
            width=16,
        ),
        machine(
            "wide",  # more units than lanes
            8,
            Array(units=16, multipliers=4, modes=modes((8, 8, 1), (8, 4, 2)), depthwise=True),
            width=8,
        ),
        unfolding(
            machine(
                "images",
                16,
                Array(units=16, multipliers=8, modes=modes((16, 8, 1), (8, 8, 2)), depthwise=True),
                width=16,
            )
        ),
        gated(
            machine(
                "gated",
                8,
                Array(units=8, multipliers=4, modes=modes((8, 4, 1)), depthwise=True),
                width=8,
            )
        ),
    )
}
