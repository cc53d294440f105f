"""Faulty words, instructions and accesses, with the engine that must meet them."""

from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import OPCODE, Engine, registers_of
from opu_fuse.units.base import ModuleKind, Stage
from rtl_sim.benches.axi_window import WINDOW
from rtl_sim.benches.graph_orders import orders_of
from rtl_sim.benches.post_model import residual_kinds
from rtl_sim.benches.small_programs import RESULT, SLOT, SPEC, W, inner

ENGINES = (Engine.LOAD, Engine.COMPUTE, Engine.POST, Engine.STORE)
FETCH, LOAD, STORE = Engine.FETCH, Engine.LOAD, Engine.STORE


def explicit(engine, opcode, **values):
    """An instruction that sets every register of its engine."""
    words = [
        engine << 28 | r.index << 22 | values.get(r.name, 0) & 0x3FFFFF
        for r in registers_of(engine)
    ]
    return [*words, 1 << 31 | engine << 28 | OPCODE[engine, opcode].code << 24]


def raw(engine, op=0, low=0):
    return 1 << 31 | engine << 28 | op << 24 | low


def bad_words(rng):
    """(name, engine that meets it, word): words that are no instruction."""
    bit = 1 << int(rng.integers(8))
    yield "reserved bits", (engine := ENGINES[rng.integers(4)]), raw(engine, 0, bit)
    for name, shift in (("wait", 16), ("signal", 8)):
        own = 1 << engine if rng.random() < 0.5 else 1 << int(rng.choice([0, 5, 6, 7]))
        yield f"{name} on nobody", engine, raw(engine, 0, own << shift)
    yield "unknown engine", FETCH, raw(int(rng.integers(5, 8)))
    yield "register of an unknown engine", FETCH, int(rng.integers(5, 8)) << 28
    for any_engine in (*ENGINES, FETCH):
        count = sum(e is any_engine for e, _ in OPCODE)
        yield "unknown opcode", any_engine, raw(any_engine, int(rng.integers(count, 16)))
        free = len(registers_of(any_engine))
        if free < 64:
            word = any_engine << 28 | int(rng.integers(free, 64)) << 22
            yield "unknown register", any_engine, word
    for any_engine in ENGINES:
        narrow = [r for r in registers_of(any_engine) if r.bits < 22]
        register = narrow[rng.integers(len(narrow))]
        value = register.highest + 1
        yield "value too large", any_engine, any_engine << 28 | register.index << 22 | value


SHAPE = {"run": 1, "rows": 1, "blocks": 1}
UNIT = {"stride_y": 1, "stride_x": 1, "out_rows": 1, "out_cols": 1}
POST = UNIT | {"in_rows": 1, "in_cols": 1, "win_rows": 1, "win_cols": 1, "blocks": 1}


def bad_instructions():
    """(name, engine, words): whole instructions that their engine refuses."""
    for name in SHAPE:
        yield f"{name} 0", LOAD, explicit(LOAD, "feature", **SHAPE | {name: 0})
        yield f"{name} 0", STORE, explicit(STORE, "store", **SHAPE | {name: 0})
    yield "misaligned", LOAD, explicit(LOAD, "weight", **SHAPE, dram_lo=1)
    yield "misaligned", STORE, explicit(STORE, "store", **SHAPE, dram_lo=W // 2)
    skipped = {"skip_low": SPEC.word_bytes - 1, "skip_high": 1}
    yield "nothing written", STORE, explicit(STORE, "store", **SHAPE, **skipped)
    for name in ("pre", "table"):
        if getattr(SPEC.buffers, name) is None:
            yield f"no {name} buffer", LOAD, explicit(LOAD, name, **SHAPE)
    if not SPEC.has(ModuleKind.UPSAMPLE):
        yield "no upsampling", STORE, explicit(STORE, "store", **SHAPE, repeat_cols=1)
    for name in UNIT:
        copy = UNIT | {"ic_steps": 1, "in_rows": 1, "in_cols": 1, name: 0}
        yield f"{name} 0", Engine.COMPUTE, explicit(Engine.COMPUTE, "copy", **copy)
        yield f"{name} 0", Engine.POST, explicit(Engine.POST, "run", **POST | {name: 0})
    if not SPEC.array.depthwise:
        yield "no depthwise", Engine.COMPUTE, explicit(Engine.COMPUTE, "depthwise", **UNIT)
    for order in (0xF, 0x11, 0x12, 0x22, 0x201):  # no machine has one of these
        post = POST | {"order": order}
        yield f"order {order:#x}", Engine.POST, explicit(Engine.POST, "run", **post)
    orders = orders_of(SPEC)
    for order in orders.every:
        if orders.kinds(order) == (Stage.RESIDUAL,):
            for kind in sorted({*range(4)} - {*residual_kinds(SPEC, order)}):
                post = POST | {"order": order, "res_kind": kind}
                yield f"res_kind {kind}", Engine.POST, explicit(Engine.POST, "run", **post)


def outside(rng):
    """(name, code, engine, words): accesses that leave the window or a buffer."""
    far = int(rng.integers(WINDOW // W, (1 << 32) // W)) * W
    cases = {
        "after the window": {"dram": WINDOW},
        "across its end": {"dram": WINDOW - W, "run": 2},
        "the last run": {"dram": 0, "rows": 2, "row_pitch": WINDOW // W},
        "the last block": {"dram": W, "blocks": 2, "block_pitch": WINDOW // W - 1},
        "across 4 GiB": {"dram": (1 << 32) - W, "run": 2},
        "far away": {"dram": far},
        "the largest pitch": {"dram": 0, "rows": 3, "row_pitch": (1 << 22) - 1},
    }
    for name, values in cases.items():
        dram = {"dram_lo": values["dram"] & 0x3FFFFF, "dram_hi": values["dram"] >> 22}
        shape = SHAPE | {n: v for n, v in values.items() if n != "dram"} | dram
        yield name, ErrorCode.WINDOW, LOAD, explicit(LOAD, "feature", **shape)
        yield name, ErrorCode.WINDOW, STORE, explicit(STORE, "store", **shape)
    buffers = SPEC.buffers
    shape = SHAPE | {"run": 2, "dst": buffers.residual.words - 1}
    yield "residual", ErrorCode.BUFFER, LOAD, explicit(LOAD, "residual", **shape)
    shape = SHAPE | {"run": 2, "src": buffers.output.words - 1}
    yield "output", ErrorCode.BUFFER, STORE, explicit(STORE, "store", **shape, dram_lo=RESULT)


BAD_RECORDS = 0x2000
"""Address of records that no machine computes with."""

TILE = "in_rows=8 in_cols=8 stride_y=1 stride_x=1 out_rows=8 out_cols=8"
LOOPS = f"{TILE} psum_row_pitch=8 win_rows=1 win_cols=1 blocks=1 out_row_pitch=8"


def under_way():
    """(name, code, engine, words): what an engine meets while it computes."""
    last = SPEC.buffers.param.words - 8
    load = f"load.param dram={BAD_RECORDS:#x} dst={last} run=8 rows=1 blocks=1 signal=post\n"
    yield (
        "a shift that is too large",
        *(ErrorCode.PARAMETER, Engine.POST),
        inner(
            f"{load}post.run {LOOPS} order=requant param={last} wait=load signal=load\n"
            # Holds back loads of the program, which write to the same address.
            f"load.param dram={BAD_RECORDS:#x} dst={last} run=1 rows=1 blocks=1 wait=post"
        ),
    )
    buffers = SPEC.buffers
    copy = f"compute.copy {TILE} row_pitch=8 ic_steps=1 {SLOT}"
    ends = (
        ("feature", buffers.feature, Engine.COMPUTE, f"{copy} feature="),
        ("psum", buffers.psum, Engine.COMPUTE, f"{copy} psum="),
        ("psum", buffers.psum, Engine.POST, f"post.run {LOOPS} psum="),
        ("output", buffers.output, Engine.POST, f"post.run {LOOPS} out="),
    )
    for name, buffer, engine, text in ends:
        if buffer.words & (buffer.words - 1):  # else addresses wrap to 0
            words = inner(f"{text}{buffer.words - 2}")
            yield f"the end of {name}", ErrorCode.BUFFER, engine, words
    if SPEC.post.keep:
        long = f"load.feature dram=0 run={buffers.feature.words} rows=1 blocks=1\n"
        keep = f"post.run {LOOPS} keep=1 keep_row_pitch=8 wait=load"
        texts = f"{load.replace('param', 'feature')}{long * 8}{keep}"
        yield "two writers", ErrorCode.WRITERS, Engine.POST, inner(texts)
