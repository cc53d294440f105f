"""One layer through tiling, emission, proofs and the functional machine, beside a direct
computation.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from opu_fuse import fixedpoint as fx
from opu_fuse.codegen.weights import (
    pack_params,
    pack_table,
    pack_weights,
    pack_windows,
    spread_groups,
)
from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.isa.encoding import decode_with_positions, encode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.layout.shape import POINT, Shape, Side, Window
from opu_fuse.lowering.polyphase import WHOLE
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.emit_sink import EmitSink
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.memory_plan import align
from opu_fuse.schedule.placement import Placement
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race
from opu_fuse.schedule.tile_choice import PlannedLayer, with_tile
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.tile_schedule.tiled_layer import Maps
from opu_fuse.tile_schedule.traversal import TileSchedule
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import output_ranges, weight_bytes
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.tile import Tile
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Stage
from opu_fuse.units.pool import PoolKind
from rtl_sim.benches.graph_orders import orders_of

ACT = {
    "act_pos": 4,
    "act_neg": 1,
    "act_shift": 2,
    "act_x_zero": 3,
    "act_y_zero": -5,
    "act_lo": -90,
    "act_hi": 99,
}
AVERAGE = ("pool_mult", "pool_shift")
CASE_ORDER = (Stage.REQUANT, Stage.RESIDUAL, Stage.ACT)
RES = {
    "res_a_mult": 3,
    "res_b_mult": 2,
    "res_shift": 2,
    "res_a_zero": -5,
    "res_b_zero": 1,
    "res_y_zero": 7,
}


def make_shape(
    hw: HwSpec,
    *,
    array=True,
    channels=3,
    rows=8,
    cols=8,
    out_channels=5,
    kernel=(3, 3),
    strides=(1, 1),
    dilations=(1, 1),
    pads=(0, 0, 0, 0),
    groups=1,
    pool=None,
    residual=None,
    slotted=False,
    upsample=(1, 1),
    broadcast=False,
    depthwise=False,
    px=1,
    spread=False,
) -> Shape:
    """A consistent shape; `slotted` packs several pixels of at most four channels into a word."""
    window = (
        Window(kernel=kernel, strides=strides, dilations=dilations, pads=pads) if array else POINT
    )
    pre_pool_rows, pre_pool_cols = (
        (n + window.pads[a] + window.pads[a + 2] - window.dilations[a] * (window.kernel[a] - 1) - 1)
        // window.strides[a]
        + 1
        for a, n in enumerate((rows, cols))
    )
    out_rows, out_cols = pre_pool_rows, pre_pool_cols
    if pool is not None:
        out_rows, out_cols = (
            (n + pool.pads[a] + pool.pads[a + 2] - pool.kernel[a]) // pool.strides[a] + 1
            for a, n in enumerate((pre_pool_rows, pre_pool_cols))
        )
    return Shape(
        array=array,
        in_channels=channels,
        in_rows=rows,
        in_cols=cols,
        slot=4 if slotted else hw.word_bytes,
        window=window,
        groups=groups,
        pre_pool_channels=out_channels if array else channels,
        pre_pool_rows=pre_pool_rows,
        pre_pool_cols=pre_pool_cols,
        pool=pool,
        out_rows=out_rows,
        out_cols=out_cols,
        sides=(Side(before_pool=residual == "mid", broadcast=broadcast),) if residual else (),
        upsample=upsample,
        depthwise=depthwise,
        px=px,
        spread=spread,
        param_words=PARAM_WORDS if array else 0,
    )


def run_layer(
    hw: HwSpec,
    shape: Shape,
    order: tuple[Stage, ...],
    rng,
    *,
    average=False,
    uncounted=False,
    product=False,
    tile=None,
):
    """(got, expected): int8 (channels, rows, cols) by the machine and by direct computation."""
    shape = msgspec.structs.replace(shape, tables=order.count(Stage.TABLE))
    if tile is None:
        tile, estimate = choose_tile("layer", shape, hw)
    else:
        _, estimate = choose_tile("layer", shape, hw)
    ranges = output_ranges(shape, tile, hw)
    source = Layout(
        channels=shape.in_channels,
        rows=shape.in_rows,
        cols=shape.in_cols,
        word=hw.word_bytes,
        lanes=hw.word_channels,
        slot=shape.slot,
    )
    target = replace(
        source,
        channels=shape.pre_pool_channels,
        rows=shape.out_rows * shape.upsample[0],
        cols=shape.out_cols * shape.upsample[1],
        slot=hw.word_bytes // shape.stored_px,
    )
    final = replace(target, rows=shape.out_rows, cols=shape.out_cols)
    side = shape.sides[0] if shape.sides else Side()
    res_layout = (
        replace(target, rows=shape.pre_pool_rows, cols=shape.pre_pool_cols)
        if side.before_pool
        else final
    )
    if side.broadcast:
        res_layout = replace(target, rows=1, cols=1)
    table = rng.integers(-128, 128, 256).astype(np.int8)

    x = rng.integers(-128, 128, (shape.in_channels, shape.in_rows, shape.in_cols)).astype(np.int8)
    res = rng.integers(
        -128, 128, (shape.pre_pool_channels, res_layout.rows, res_layout.cols)
    ).astype(np.int8)
    kernel = shape.window.kernel
    weight = rng.integers(
        -128, 128, (shape.pre_pool_channels, shape.in_channels // shape.groups, *kernel)
    ).astype(np.int8)
    bias = rng.integers(-5000, 5000, shape.pre_pool_channels)
    spread = 8 + int(np.log2(weight[0].size) / 2)
    mult = rng.integers(1 << 12, 1 << 14, shape.pre_pool_channels)
    shift = np.full(shape.pre_pool_channels, 13 + spread)
    post = {
        **ACT,
        **RES,
        "requant_zero": 3,
        "pool_kind": int(PoolKind.AVERAGE if average else PoolKind.MAX),
        "pool_x_zero": -5,
        "pool_y_zero": 4,
        "pool_mult": 21845,
        "pool_shift": 18,
        "res_kind": int(product),
        "res_broadcast": int(side.broadcast),
    }
    counts = None
    if uncounted:
        window = shape.pool_window.kernel
        counts = {
            (r, c): (65536 // (r * c) if r * c > 1 else 65535, 16)
            for r in range(1, window[0] + 1)
            for c in range(1, window[1] + 1)
        }
    layer = lowered(
        shape,
        order=_names(hw, order, product=product),
        post=post,
        pad_value=-7,
        by_count={n: dict(zip(AVERAGE, own, strict=True)) for n, own in (counts or {}).items()},
        table_units=(0,) * order.count(Stage.TABLE),
    )
    offsets, at = {}, 0
    sizes = {
        "weights": weight_bytes(ranges, hw),
        "params": target.blocks * PARAM_WORDS * hw.word_bytes,
        "x": source.size_bytes,
        "res": res_layout.size_bytes,
        "y": target.size_bytes,
        "table": 256 * hw.word_bytes,
    }
    for name, size in sizes.items():
        offsets[name] = at
        at = align(at + size)
    places = {"weights": offsets["weights"], "params": offsets["params"]}
    places |= {"table": offsets["table"], "end": at}
    planned = _planned(hw, layer, tile, estimate, (source, target), **places)
    image = np.zeros(align(at, 4096), np.uint8)

    def put(name, data):
        image[offsets[name] : offsets[name] + data.size] = data

    if shape.depthwise:
        put("weights", pack_windows(planned, weight, hw))
    elif shape.array:
        pack_weights(planned, weight, hw, image[offsets["weights"] :], groups=shape.groups)
    if shape.array:
        put("params", pack_params(bias, mult, shift, layer.out_pieces, hw, shape.px).reshape(-1))
    put("table", pack_table(table, hw))
    put("x", source.pack(x))
    put("res", res_layout.pack(res))
    maps = (offsets["x"], source), (offsets["res"], res_layout), (offsets["y"], target)
    program = _program(hw, planned, maps)
    Machine(hw, image).run(program)
    shuffled = image.copy()
    Machine(hw, shuffled).run(program, shuffle=int(rng.integers(1 << 30)))
    got = target.unpack(image[offsets["y"] : offsets["y"] + target.size_bytes])
    assert np.array_equal(
        got, target.unpack(shuffled[offsets["y"] : offsets["y"] + target.size_bytes])
    )
    return got, _direct(shape, order, post, counts, x, res, weight, bias, mult, shift, table)


def emit_program(hw: HwSpec, shape: Shape, order: tuple[Stage, ...]):
    """The synchronised program of one layer on arbitrary addresses."""
    tile, estimate = choose_tile("layer", shape, hw)
    layout = Layout(
        channels=max(shape.in_channels, shape.pre_pool_channels),
        rows=shape.in_rows,
        cols=shape.in_cols,
        word=hw.word_bytes,
        lanes=hw.word_channels,
        slot=hw.word_bytes,
    )
    layer = lowered(shape, order=_names(hw, order), post={}, pad_value=0)
    step = align(layout.size_bytes)
    params = 3 * step + align(weight_bytes(output_ranges(shape, tile, hw), hw))
    places = {"weights": 3 * step, "params": params, "table": 0, "end": params}
    planned = _planned(hw, layer, tile, estimate, (layout, layout), **places)
    return _program(hw, planned, [(number * step, layout) for number in range(3)])


def lowered(shape: Shape, **more: Any) -> Layer:
    """A group that reads tensors 0 and, where it has a residual, 1, and makes 2."""
    return Layer(
        group=0,
        name="layer",
        gate=None,
        shape=shape,
        source=0,
        residuals=(1,) * len(shape.sides),
        residual_units=(0,) * len(shape.sides),
        output=2,
        anchor=0 if shape.array else None,
        macs=0,
        pad=None,
        pre=(),
        stages=(),
        phases=((WHOLE, shape),),
        phase=WHOLE,
        in_pieces=((0, shape.in_channels),),
        out_pieces=((0, shape.pre_pool_channels),),
        **more,
    )


def _planned(
    hw: HwSpec,
    layer: Layer,
    tile: Tile,
    estimate: Estimate,
    maps: tuple[Layout, Layout],
    **places: int,
):
    """maps: of its input and its output."""
    reads, writes = (Storage(layout=at, alias_root=i, block=0) for i, at in enumerate(maps))
    found = with_tile(layer, Maps(reads, writes, 1), hw, 0, tile, estimate)
    return msgspec.structs.replace(found, pre=0, halo=0, **places)


def _names(hw: HwSpec, order: tuple[Stage, ...], *, product=False) -> tuple[str, ...]:
    found = orders_of(hw)
    return found.names(found.pack_kinds(order, product=product))


def _program(hw: HwSpec, planned: PlannedLayer, maps: Iterable[tuple[int, Layout]]):
    """maps: byte offset and layout of the input, the second operand and the output."""
    places = [Placement(offset=at, layout=layout, skips=(0, 0)) for at, layout in maps]
    sink = EmitSink(hw, dict(enumerate(places)))
    halves = {"hash_lo": hw.spec_hash & 0x3FFFFF, "hash_hi": hw.spec_hash >> 22}
    sink.append(0, Engine.FETCH, "check", halves)
    TileSchedule(hw, sink).layer(planned)
    sink.append(0, Engine.FETCH, "end", {})
    words = encode(synchronise([step.instruction for step in sink.steps], hw))
    program, positions = decode_with_positions(words)
    prove_no_deadlock(program, positions, hw)
    prove_no_race(program, hw)
    return program


def _direct(shape, order, post, counts, x, res, weight, bias, mult, shift, table):
    value = _conv(shape, x, weight) if shape.array else x.astype(np.int64)
    for stage in order:
        match stage:
            case Stage.REQUANT:
                column = (slice(None), None, None)
                value = fx.requantize(
                    value + bias[column], mult[column], shift[column], post["requant_zero"]
                )
            case Stage.ACT:
                value = fx.activate(
                    value,
                    **{k.removeprefix("act_"): v for k, v in post.items() if k.startswith("act_")},
                )
            case Stage.RESIDUAL:
                names = {k.removeprefix("res_"): v for k, v in RES.items()}
                if post["res_kind"]:
                    del names["b_mult"]
                    value = fx.multiply_residual(value, res, mult=names.pop("a_mult"), **names)
                else:
                    value = fx.add_residual(value, res, **names)
            case Stage.TABLE:
                value = table[value.astype(np.int64) + 128]
            case Stage.POOL:
                value = _pool(shape, post, counts, value)
    return value.astype(np.int8).repeat(shape.upsample[0], 1).repeat(shape.upsample[1], 2)


def _conv(shape, x, weight):
    w = shape.window
    t, left, b, r = w.pads
    padded = np.pad(x.astype(np.int64), ((0, 0), (t, b), (left, r)), constant_values=-7)
    dense = spread_groups(weight, shape.groups, 0, len(weight)).astype(np.int64)
    total = np.zeros((shape.pre_pool_channels, shape.pre_pool_rows, shape.pre_pool_cols), np.int64)
    for ky in range(w.kernel[0]):
        for kx in range(w.kernel[1]):
            y0, x0 = ky * w.dilations[0], kx * w.dilations[1]
            part = padded[:, y0 :: w.strides[0], x0 :: w.strides[1]][
                :, : shape.pre_pool_rows, : shape.pre_pool_cols
            ]
            total += np.einsum("oi,ihw->ohw", dense[:, :, ky, kx], part)
    return total


def _pool(shape, post, counts, value):
    p = shape.pool
    out = np.zeros((value.shape[0], shape.out_rows, shape.out_cols), np.int8)
    for y in range(shape.out_rows):
        for x in range(shape.out_cols):
            y0, x0 = y * p.strides[0] - p.pads[0], x * p.strides[1] - p.pads[1]
            part = value[:, max(y0, 0) : y0 + p.kernel[0], max(x0, 0) : x0 + p.kernel[1]].astype(
                np.int64
            )
            if post["pool_kind"] == PoolKind.MAX:
                out[:, y, x] = part.max(axis=(1, 2))
                continue
            mult, shift = counts[part.shape[1:]] if counts else [post[n] for n in AVERAGE]
            total = (part - post["pool_x_zero"]).sum(axis=(1, 2))
            out[:, y, x] = fx.average(total, mult=mult, shift=shift, y_zero=post["pool_y_zero"])
    return out
